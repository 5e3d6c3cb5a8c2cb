// Products in float32. Compiled once with AVX2 and once with AVX-512 (and then TIDELOG_WIDE).
#include "products.h"

#include <immintrin.h>

#include "tile.h"

namespace tidelog {
namespace {

#ifdef TIDELOG_WIDE
struct Set {
  using Entry = float;
  using Factor = __m512;
  using Sum = __m512;
  static constexpr long LANES = 16, TILE_ROWS = 12;  // 24 sums and 2 columns: 26 of 32 registers

  static __mmask16 first(long count) { return count >= LANES ? 0xffff : count > 0 ? (1u << count) - 1 : 0; }
  static Sum zeros() { return _mm512_setzero_ps(); }
  static Sum all(float x) { return _mm512_set1_ps(x); }
  static Sum entries(const float* p) { return _mm512_loadu_ps(p); }
  static Sum load(const float* p, long count) { return _mm512_maskz_loadu_ps(first(count), p); }
  static void store(float* p, Sum v) { _mm512_storeu_ps(p, v); }
  static void store(float* p, Sum v, long count) { _mm512_mask_storeu_ps(p, first(count), v); }
  static Sum add(Sum a, Sum b) { return _mm512_add_ps(a, b); }
  static Sum multiply_add(Sum a, Sum b, Sum c) { return _mm512_fmadd_ps(a, b, c); }
  static Sum relu(Sum v) { return _mm512_max_ps(zeros(), v); }  // of NaN and 0 it takes the second: NaN stays
  static Sum where_positive(Sum active, Sum v) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(active, zeros(), _CMP_GT_OQ), v);
  }
};

// 16 x 16 entries: to[i * stride + j] = from[j * columns + i]
void transpose(const float* from, long columns, float* to, long stride) {
  __m512 a[16], b[16];
  for (int i = 0; i < 16; i++) a[i] = Set::entries(from + i * columns);
  for (int i = 0; i < 16; i += 2) {  // pairs of rows
    b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // fours
    a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
    a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xee);
    a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
    a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xee);
  }
  for (int half = 0; half < 16; half += 8)
    for (int i = half; i < half + 4; i++) {  // eights
      b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
      b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
    }
  for (int i = 0; i < 8; i++) {
    Set::store(to + i * stride, _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88));
    Set::store(to + (i + 8) * stride, _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd));
  }
}
#else
struct Set {
  using Entry = float;
  using Factor = __m256;
  using Sum = __m256;
  static constexpr long LANES = 8, TILE_ROWS = 6;  // 12 sums and 2 columns: 14 of 16 registers

  static __m256i first(long count) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count < LANES ? (int)count : (int)LANES), lanes);
  }
  static Sum zeros() { return _mm256_setzero_ps(); }
  static Sum all(float x) { return _mm256_set1_ps(x); }
  static Sum entries(const float* p) { return _mm256_loadu_ps(p); }
  static Sum load(const float* p, long count) { return _mm256_maskload_ps(p, first(count)); }
  static void store(float* p, Sum v) { _mm256_storeu_ps(p, v); }
  static void store(float* p, Sum v, long count) { _mm256_maskstore_ps(p, first(count), v); }
  static Sum add(Sum a, Sum b) { return _mm256_add_ps(a, b); }
  static Sum multiply_add(Sum a, Sum b, Sum c) { return _mm256_fmadd_ps(a, b, c); }
  static Sum relu(Sum v) { return _mm256_max_ps(zeros(), v); }
  static Sum where_positive(Sum active, Sum v) {
    return _mm256_and_ps(_mm256_cmp_ps(active, zeros(), _CMP_GT_OQ), v);
  }
};

void transpose(const float* from, long columns, float* to, long stride) {
  for (long i = 0; i < Set::LANES; i++)
    for (long j = 0; j < Set::LANES; j++) to[i * stride + j] = from[j * columns + i];
}
#endif

using Vector = Set::Sum;
constexpr long LANES = Set::LANES, PANEL = 2 * LANES;

// Copies columns j ... of matrix [K, N] to a panel [K, PANEL], zeros beyond N; `sums` [N] takes the sums over k.
void copy_panel(const float* matrix, long K, long N, long j, float* panel, float* sums) {
  const long width = N - j;
  Vector sum[2] = {Set::zeros(), Set::zeros()};
  for (long k = 0; k < K; k++)
    for (long v = 0; v < 2; v++) {
      const float* from = matrix + k * N + j + v * LANES;
      Vector entries = width >= PANEL ? Set::entries(from) : width > v * LANES ? Set::load(from, width - v * LANES) : Set::zeros();
      Set::store(panel + k * PANEL + v * LANES, entries);
      sum[v] = Set::add(sum[v], entries);
    }
  for (long v = 0; sums && v < 2 && width > v * LANES; v++) Set::store(sums + j + v * LANES, sum[v], width - v * LANES);
}

// Copies rows j ... of matrix [N, K] to a panel [K, PANEL] as columns, zeros beyond N.
void copy_panel_transposed(const float* matrix, long K, long N, long j, float* panel) {
  for (long v = 0; v < PANEL; v += LANES) {
    const float* from = matrix + (j + v) * K;
    long k = 0;
    if (j + v + LANES <= N)
      for (; k + LANES <= K; k += LANES) transpose(from + k, K, panel + k * PANEL + v, PANEL);
    for (; k < K; k++)
      for (long c = 0; c < LANES; c++) panel[k * PANEL + v + c] = j + v + c < N ? from[c * K + k] : 0.0f;
  }
}

// One output: y [N] = x w + b, as inner products over 64 lanes, added up in an order that every width of vectors keeps.
void inner_products(const Forward& f) {
  constexpr long BLOCK = 64, V = BLOCK / LANES;
  for (long i = 0; i < f.rows; i++) {
    const float* x = f.x + i * f.inputs;
    Vector sums[V];
    for (Vector& sum : sums) sum = Set::zeros();
    long k = 0;
    for (; k + BLOCK <= f.inputs; k += BLOCK)
      for (long v = 0; v < V; v++)
        sums[v] = Set::multiply_add(Set::entries(x + k + v * LANES), Set::entries(f.weight + k + v * LANES), sums[v]);
    float rest = f.bias[0], lanes[BLOCK];
    for (; k < f.inputs; k++) rest = __builtin_fmaf(x[k], f.weight[k], rest);
    for (long half = V / 2; half; half /= 2)
      for (long v = 0; v < half; v++) sums[v] = Set::add(sums[v], sums[v + half]);
    Set::store(lanes, sums[0]);
    long many = LANES;
    for (; many > 1; many /= 2)
      for (long l = 0; l < many / 2; l++) lanes[l] += lanes[l + many / 2];
    const float y = lanes[0] + rest;
    f.y[i] = f.relu && y < 0 ? 0.0f : y;
  }
}

void forward(const Forward& f, long part, float* room) {
  if (f.outputs == 1) return inner_products(f);
  const bool few = f.outputs <= PANEL;  // one panel: the parts are blocks of rows
  const long j = few ? 0 : part * PANEL;
  copy_panel(f.weight, f.inputs, f.outputs, j, room, nullptr);
  Product<Set> p{f.x, f.inputs, 1, room, f.y, f.outputs, f.inputs, j, f.bias, nullptr, f.relu};
  p.rows(few ? share(f.rows, part) : 0, few ? share(f.rows, part + 1) : f.rows);
}

void to_weight_of_one_output(const ToWeight& w) {  // dW [I] = the sum of rows of x, weighted by dy [N]
  float sum = 0;
  for (long n = 0; n < w.rows; n++) sum += w.dy[n];
  w.bias[0] = sum;
  constexpr long V = 8;
  for (long i = 0; i < w.inputs; i += V * LANES) {
    Vector sums[V];
    for (Vector& entry : sums) entry = Set::zeros();
    const long width = w.inputs - i, vectors = width >= V * LANES ? V : (width + LANES - 1) / LANES;
    if (width >= V * LANES)
      for (long n = 0; n < w.rows; n++)
        for (long v = 0; v < V; v++)
          sums[v] = Set::multiply_add(Set::all(w.dy[n]), Set::entries(w.x + n * w.inputs + i + v * LANES), sums[v]);
    else
      for (long n = 0; n < w.rows; n++)
        for (long v = 0; v < vectors; v++)
          sums[v] = Set::multiply_add(Set::all(w.dy[n]), Set::load(w.x + n * w.inputs + i + v * LANES, width - v * LANES), sums[v]);
    for (long v = 0; v < vectors; v++) Set::store(w.weight + i + v * LANES, sums[v], width - v * LANES);
  }
}

void to_weight(const ToWeight& w, long part, float* room) {
  if (w.outputs == 1) return to_weight_of_one_output(w);
  const bool few = w.outputs <= PANEL;
  const long j = few ? 0 : part * PANEL;
  copy_panel(w.dy, w.rows, w.outputs, j, room, few && part ? nullptr : w.bias);
  Product<Set> p{w.x, 1, w.inputs, room, w.weight, w.outputs, w.rows, j, nullptr, nullptr, false};
  p.rows(few ? share(w.inputs, part) : 0, few ? share(w.inputs, part + 1) : w.inputs);
}

void to_input(const ToInput& d, long part, float* room) {
  copy_panel_transposed(d.weight, d.outputs, d.inputs, part * PANEL, room);
  Product<Set> p{d.dy, d.outputs, 1, room, d.dx, d.inputs, d.outputs, part * PANEL, nullptr, d.active, false};
  p.rows(0, d.rows);
}

void masked(const float* active, const float* dy, float* to, long count) {
  for (long i = 0; i < count; i += LANES)
    Set::store(to + i, Set::where_positive(Set::load(active + i, count - i), Set::load(dy + i, count - i)), count - i);
}

}  // namespace

#ifdef TIDELOG_WIDE
extern const Products avx512{PANEL, forward, to_weight, to_input, masked};
#else
extern const Products avx2{PANEL, forward, to_weight, to_input, masked};
#endif

}  // namespace tidelog
