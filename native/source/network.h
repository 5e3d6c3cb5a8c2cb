// Dense layers with ReLU between them, forwards and backwards, on the threads of a pool.
#pragma once
#include <functional>
#include <vector>

namespace tidelog {

enum class Instructions { none, avx2, avx512, avx512_bf16 };
Instructions of_this_processor();

struct Network {
  long rows;                // N
  std::vector<long> sizes;  // widths from the input to the output
  std::vector<const float*> weights, biases;  // of layer l: [sizes[l], sizes[l + 1]], [sizes[l + 1]]
  bool relu_last;
  bool rounded;  // factors rounded to bfloat16, where a layer has several outputs
  Instructions instructions = of_this_processor();
};

struct Pool {  // others' threads, which may help; the caller does what they do not
  long threads = 1;
  std::function<void(std::function<void()>)> schedule;
};

// Writes the outputs of each layer; a null one, of a hidden layer, is not kept.
void forward(const Network&, const float* x, const std::vector<float*>& outputs, const Pool&);

// From inputs[l] [N, sizes[l]] of each layer, `last` [N, O] (only with `relu_last`) and dy [N, O]: the gradients of
// weights and biases (empty: not wanted), and of the input (null: not wanted).
void backward(const Network&, const std::vector<const float*>& inputs, const float* last, const float* dy,
              const std::vector<float*>& to_weights, const std::vector<float*>& to_biases, float* to_input, const Pool&);

}  // namespace tidelog
