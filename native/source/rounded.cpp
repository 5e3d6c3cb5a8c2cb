// Products of factors rounded to bfloat16, with sums in float32 (AVX-512 with vdpbf16ps).
//
// A lane of 32 bits holds two neighbours along the inner axis; an odd last one has a 0 beside it. Rounding is to the
// nearest, ties to even; NaN stays NaN.
#include <immintrin.h>

#include "products.h"
#include "tile.h"

namespace tidelog {
namespace {

using Pair = std::uint32_t;

struct Set {
  using Entry = Pair;
  using Factor = __m512bh;
  using Sum = __m512;
  static constexpr long LANES = 16, TILE_ROWS = 12;

  static __mmask16 first(long count) { return count >= LANES ? 0xffff : count > 0 ? (1u << count) - 1 : 0; }
  static Sum zeros() { return _mm512_setzero_ps(); }
  static Factor all(Pair x) { return (__m512bh)_mm512_set1_epi32((int)x); }
  static Factor entries(const Pair* p) { return (__m512bh)_mm512_loadu_si512(p); }
  static Sum load(const float* p, long count) { return _mm512_maskz_loadu_ps(first(count), p); }
  static void store(float* p, Sum v, long count) { _mm512_mask_storeu_ps(p, first(count), v); }
  static Sum multiply_add(Factor a, Factor b, Sum c) { return _mm512_dpbf16_ps(c, a, b); }
  static Sum relu(Sum v) { return _mm512_max_ps(zeros(), v); }
  static Sum where_positive(Sum active, Sum v) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(active, zeros(), _CMP_GT_OQ), v);
  }
};

constexpr long LANES = Set::LANES, PANEL = 2 * LANES;

// Lane i is (even[i], odd[i]), rounded.
__m512i paired(__m512 even, __m512 odd) {
  const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(odd, even);  // 16 of even, then 16 of odd
  const __m512i low = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i order = _mm512_or_si512(low, _mm512_slli_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(16)), 16));
  return _mm512_permutexvar_epi16(order, halves);
}

// Rows first ... last of x [., I] to pairs [., ceil(I / 2)] of neighbours in a row.
void along_rows(const float* x, Pair* pairs, long columns, long first_row, long last_row) {
  const long half = (columns + 1) / 2;
  for (long i = first_row; i < last_row; i++)
    for (long k = 0; k < columns; k += 2 * LANES) {
      const float* from = x + i * columns + k;
      const __m512 low = Set::load(from, columns - k), high = Set::load(from + LANES, columns - k - LANES);
      const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
      _mm512_mask_storeu_epi32(pairs + i * half + k / 2, Set::first((columns - k + 1) / 2), both);
    }
}

// Pairs first ... last of two rows of x [N, I] to pairs [ceil(N / 2), I].
void across_rows(const float* x, Pair* pairs, long rows, long columns, long first_pair, long last_pair) {
  for (long p = first_pair; p < last_pair; p++)
    for (long c = 0; c < columns; c += LANES) {
      const float* from = x + 2 * p * columns + c;
      const __m512 odd = 2 * p + 1 < rows ? Set::load(from + columns, columns - c) : _mm512_setzero_ps();
      _mm512_mask_storeu_epi32(pairs + p * columns + c, Set::first(columns - c), paired(Set::load(from, columns - c), odd));
    }
}

// Copies columns j ... of matrix [K, N] to a panel [ceil(K / 2), 32] of pairs; `sums` [N] takes the sums over k.
void copy_panel(const float* matrix, long K, long N, long j, Pair* panel, float* sums) {
  for (long v = 0; v < PANEL; v += LANES) {
    const long width = N - j - v;
    __m512 sum = _mm512_setzero_ps();
    for (long k = 0; k < K; k += 2) {
      const float* from = matrix + k * N + j + v;
      const __m512 even = Set::load(from, width), odd = k + 1 < K ? Set::load(from + N, width) : _mm512_setzero_ps();
      sum = _mm512_add_ps(_mm512_add_ps(sum, even), odd);
      _mm512_storeu_si512(panel + k / 2 * PANEL + v, paired(even, odd));
    }
    if (sums && width > 0) _mm512_mask_storeu_ps(sums + j + v, Set::first(width), sum);
  }
}

// Copies rows j ... of pairs [N, K] to a panel [K, 32] as columns, zeros beyond N.
void copy_panel_transposed(const Pair* pairs, long K, long N, long j, Pair* panel) {
  const __m512i rows = _mm512_mullo_epi32(
      _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), _mm512_set1_epi32((int)K));
  for (long v = 0; v < PANEL; v += LANES)
    for (long k = 0; k < K; k++)
      _mm512_storeu_si512(panel + k * PANEL + v, _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), Set::first(N - j - v),
                                                                            rows, pairs + (j + v) * K + k, 4));
}

void forward(const Forward& f, long part, float* room) {
  Pair* panel = (Pair*)room;
  const bool few = f.outputs <= PANEL;
  const long j = few ? 0 : part * PANEL, half = (f.inputs + 1) / 2;
  copy_panel(f.weight, f.inputs, f.outputs, j, panel, nullptr);
  Product<Set> p{f.rounded_x, half, 1, panel, f.y, f.outputs, half, j, f.bias, nullptr, f.relu};
  p.rows(few ? share(f.rows, part) : 0, few ? share(f.rows, part + 1) : f.rows);
}

void to_weight(const ToWeight& w, long part, float* room) {
  Pair* panel = (Pair*)room;
  const bool few = w.outputs <= PANEL;
  const long j = few ? 0 : part * PANEL, half = (w.rows + 1) / 2;
  copy_panel(w.dy, w.rows, w.outputs, j, panel, few && part ? nullptr : w.bias);
  Product<Set> p{w.rounded_x, 1, w.inputs, panel, w.weight, w.outputs, half, j, nullptr, nullptr, false};
  p.rows(few ? share(w.inputs, part) : 0, few ? share(w.inputs, part + 1) : w.inputs);
}

void to_input(const ToInput& d, long part, float* room) {
  Pair* panel = (Pair*)room;
  const long half = (d.outputs + 1) / 2;
  copy_panel_transposed(d.rounded_weight, half, d.inputs, part * PANEL, panel);
  Product<Set> p{d.rounded_dy, half, 1, panel, d.dx, d.inputs, half, part * PANEL, nullptr, d.active, false};
  p.rows(0, d.rows);
}

}  // namespace

extern const RoundedProducts avx512_bf16{
    along_rows, across_rows, {PANEL, forward, to_weight, to_input, nullptr}};

}  // namespace tidelog
