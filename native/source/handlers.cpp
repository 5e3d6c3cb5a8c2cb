// Networks as calls of XLA (jax.ffi). A call that does not fit is refused in words.
#include <string>

#include "network.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

using tidelog::Network;

ffi::Error refused(const std::string& what) { return ffi::Error::InvalidArgument("tidelog-kernels: " + what); }

struct Array {  // float32, of at most two axes
  float* data = nullptr;
  long rows = 1, columns = 0;  // [columns] has one row
};

class Arrays {  // arguments or results, as far as all have been float32 arrays
 public:
  template <class Remaining>
  explicit Arrays(Remaining& remaining) {
    for (std::size_t i = 0; i < remaining.size(); i++) add(buffer(remaining, i));
  }
  bool fit = true;
  std::vector<Array> all;

 private:
  static ffi::AnyBuffer buffer(ffi::RemainingArgs& arguments, std::size_t i) { return *arguments.get<ffi::AnyBuffer>(i); }
  static ffi::AnyBuffer buffer(ffi::RemainingRets& results, std::size_t i) { return **results.get<ffi::AnyBuffer>(i); }
  void add(const ffi::AnyBuffer& buffer) {
    const auto axes = buffer.dimensions();
    fit = fit && buffer.element_type() == ffi::F32 && (axes.size() == 1 || axes.size() == 2);
    if (fit) all.push_back({static_cast<float*>(buffer.untyped_data()), axes.size() == 2 ? axes[0] : 1, axes.back()});
  }
};

bool is(const Array& array, long rows, long columns) { return array.rows == rows && array.columns == columns; }

tidelog::Pool pool_of(ffi::ThreadPool& pool) {
  return {pool.num_threads(), [&pool](std::function<void()> task) { pool.Schedule(std::move(task)); }};
}

// x, then the weight and the bias of each layer -> the outputs of all layers, or of the last one.
ffi::Error Forward(ffi::ThreadPool threads, ffi::RemainingArgs arguments, ffi::RemainingRets results, bool relu_last,
                   bool rounded) {
  const Arrays in(arguments), out(results);
  const long layers = (static_cast<long>(in.all.size()) - 1) / 2, outputs = out.all.size();
  if (!in.fit || !out.fit || layers < 1 || in.all.size() != 1 + 2 * static_cast<std::size_t>(layers))
    return refused("forward reads float32 arrays: x, then the weight and the bias of each layer");
  if (outputs != 1 && outputs != layers) return refused("forward writes the outputs of all layers, or of the last");
  Network network{in.all[0].rows, {in.all[0].columns}, {}, {}, relu_last, rounded};
  std::vector<float*> to(layers);
  for (long l = 0; l < layers; l++) {
    const Array &weight = in.all[1 + 2 * l], &bias = in.all[2 + 2 * l];
    if (weight.rows != network.sizes.back() || !is(bias, 1, weight.columns))
      return refused("the weight or the bias of layer " + std::to_string(l) + " has another shape");
    network.sizes.push_back(weight.columns);
    network.weights.push_back(weight.data), network.biases.push_back(bias.data);
    const long place = outputs == layers ? l : l + 1 == layers ? 0 : -1;
    if (place >= 0 && !is(out.all[place], network.rows, weight.columns))
      return refused("the outputs of layer " + std::to_string(l) + " have another shape");
    to[l] = place >= 0 ? out.all[place].data : nullptr;
  }
  tidelog::forward(network, in.all[0].data, to, pool_of(threads));
  return ffi::Error::Success();
}

// The inputs of all layers, the last outputs if `relu_last`, dy, the weights -> the gradients of the weight and the
// bias of each layer if `to_weights`, that of x if `to_input`.
ffi::Error Backward(ffi::ThreadPool threads, ffi::RemainingArgs arguments, ffi::RemainingRets results, bool relu_last,
                    bool rounded, bool to_weights, bool to_input) {
  const Arrays in(arguments), out(results);
  const long layers = (static_cast<long>(in.all.size()) - 1 - relu_last) / 2;
  if (!in.fit || !out.fit || layers < 1 || in.all.size() != static_cast<std::size_t>(2 * layers + 1 + relu_last))
    return refused("backward reads float32 arrays: inputs of layers, dy, weights");
  if (out.all.size() != static_cast<std::size_t>((to_weights ? 2 * layers : 0) + to_input))
    return refused("backward writes a weight and a bias of each layer, and an input");
  Network network{in.all[0].rows, {in.all[0].columns}, {}, {}, relu_last, rounded};
  std::vector<const float*> inputs;
  std::vector<float*> weights, biases;
  for (long l = 0; l < layers; l++) {
    const Array &input = in.all[l], &weight = in.all[layers + relu_last + 1 + l];
    if (!is(input, network.rows, network.sizes.back()) || weight.rows != network.sizes.back())
      return refused("the input or the weight of layer " + std::to_string(l) + " has another shape");
    network.sizes.push_back(weight.columns);
    network.weights.push_back(weight.data), inputs.push_back(input.data);
    if (!to_weights) continue;
    if (!is(out.all[2 * l], weight.rows, weight.columns) || !is(out.all[2 * l + 1], 1, weight.columns))
      return refused("a gradient of layer " + std::to_string(l) + " has another shape");
    weights.push_back(out.all[2 * l].data), biases.push_back(out.all[2 * l + 1].data);
  }
  const Array& dy = in.all[layers + relu_last];
  if (!is(dy, network.rows, network.sizes.back()) || (relu_last && !is(in.all[layers], dy.rows, dy.columns)) ||
      (to_input && !is(out.all.back(), network.rows, network.sizes[0])))
    return refused("dy, the last outputs or the gradient of x have another shape");
  tidelog::backward(network, inputs, relu_last ? in.all[layers].data : nullptr, dy.data, weights, biases,
                    to_input ? out.all.back().data : nullptr, pool_of(threads));
  return ffi::Error::Success();
}

auto binding() {
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().RemainingArgs().RemainingRets().Attr<bool>("relu_last").Attr<bool>(
      "rounded");
}

}  // namespace

#pragma GCC visibility push(default)

XLA_FFI_DEFINE_HANDLER_SYMBOL(tidelog_forward, Forward, binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tidelog_backward, Backward, binding().Attr<bool>("to_weights").Attr<bool>("to_input"));

// What this processor multiplies: 0 nothing, 1 float32, 2 bfloat16 too.
extern "C" int tidelog_products() {
  const tidelog::Instructions best = tidelog::of_this_processor();
  return best == tidelog::Instructions::none ? 0 : best == tidelog::Instructions::avx512_bf16 ? 2 : 1;
}

#pragma GCC visibility pop
