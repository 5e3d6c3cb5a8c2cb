// Products of dense layers on x86-64: float32, and factors rounded to bfloat16 with sums in float32.
//
// A product is cut into parts, which any thread may compute, in any order: each entry is one chain of fused
// multiply-adds over the inner axis, so its bits depend neither on the cut nor on the width of vectors. All matrices lie
// row by row. `rows` N are samples, `inputs` I and `outputs` O are the widths of a layer.
#pragma once
#include <cstdint>

namespace tidelog {

constexpr long ROW_PARTS = 4;  // into how many blocks of rows a product is cut whose columns fit in one panel

inline long share(long rows, long part) { return rows * part / ROW_PARTS; }

struct Forward {  // y [N, O] = x [N, I] W [I, O] + b [O], then ReLU on request
  const float *x, *weight, *bias;
  float* y;
  long rows, inputs, outputs;
  bool relu;
  const std::uint32_t* rounded_x;  // pairs of bfloat16 [N, ceil(I / 2)], only for rounded products
};

struct ToWeight {  // dW [I, O] = x^T dy, and db [O] = the sums of dy [N, O] over samples
  const float *x, *dy;
  float *weight, *bias;
  long rows, inputs, outputs;
  const std::uint32_t* rounded_x;  // pairs of two samples [ceil(N / 2), I]
};

struct ToInput {  // dx [N, I] = dy W^T, and 0 where `active` [N, I] is not positive (null: everywhere kept)
  const float *dy, *weight, *active;
  float* dx;
  long rows, inputs, outputs;
  const std::uint32_t *rounded_dy, *rounded_weight;  // pairs [N, ceil(O / 2)] and [I, ceil(O / 2)]
};

// Parts of a product, and room for the panel that a part copies its right factor into, in floats.
struct Products {
  long panel;  // columns of a panel
  void (*forward)(const Forward&, long part, float* room);
  void (*to_weight)(const ToWeight&, long part, float* room);
  void (*to_input)(const ToInput&, long part, float* room);
  void (*masked)(const float* active, const float* dy, float* to, long count);  // dy where active is positive, else 0

  long panels(long columns) const { return (columns + panel - 1) / panel; }
  long parts(long outputs) const { return outputs > panel ? panels(outputs) : outputs > 1 ? ROW_PARTS : 1; }
};

// Rounding to bfloat16, and products of rounded factors, in the same parts of panels of 32 columns.
struct RoundedProducts {
  void (*along_rows)(const float* x, std::uint32_t* pairs, long columns, long first, long last);
  void (*across_rows)(const float* x, std::uint32_t* pairs, long rows, long columns, long first, long last);
  Products products;
};

extern const Products avx2, avx512;
extern const RoundedProducts avx512_bf16;

}  // namespace tidelog
