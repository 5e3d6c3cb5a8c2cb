// The product of a matrix and a panel, over any instruction set. `Set` says what a vector holds:
//
//   LANES       entries of a vector; a panel has two vectors of columns
//   TILE_ROWS   rows of a tile, whose sums all stay in registers
//   Entry       what factors are made of: a float, or a pair of bfloat16 along the inner axis
//   Factor      a vector of entries; `Sum` a vector of floats
#pragma once

namespace tidelog {

template <class Set>
struct Product {  // C [M, N] = A [M, K] times a panel [K, 2 LANES], in the columns j ... of C
  using Entry = typename Set::Entry;
  const Entry* A;
  long row, step;  // distances of the entries of A along M and along K
  const Entry* panel;
  float* C;
  long N, K, j;
  const float *bias, *active;  // sums begin at the bias [N]; where `active` [M, N] is not positive, C is 0
  bool relu;

  static constexpr long LANES = Set::LANES, TILE_ROWS = Set::TILE_ROWS;

  template <int R, int V>
  inline __attribute__((always_inline)) void tile(long i) const {
    const long width = N - j;
    typename Set::Sum sums[R][V];
    for (int v = 0; v < V; v++) {
      const auto begin = bias ? Set::load(bias + j + v * LANES, width - v * LANES) : Set::zeros();
      for (int r = 0; r < R; r++) sums[r][v] = begin;
    }
    const Entry *a = A + i * row, *b = panel;
    for (long k = 0; k < K; k++, a += step, b += 2 * LANES) {
      typename Set::Factor columns[V];
      for (int v = 0; v < V; v++) columns[v] = Set::entries(b + v * LANES);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const auto left = Set::all(a[r * row]);
        for (int v = 0; v < V; v++) sums[r][v] = Set::multiply_add(left, columns[v], sums[r][v]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
      for (int v = 0; v < V; v++) {
        const long at = (i + r) * N + j + v * LANES, count = width - v * LANES;
        auto sum = relu ? Set::relu(sums[r][v]) : sums[r][v];
        if (active) sum = Set::where_positive(Set::load(active + at, count), sum);
        Set::store(C + at, sum, count);
      }
  }

  template <int V, int R = TILE_ROWS>
  void tile_of(long rows, long i) const {
    if constexpr (R > 0) rows == R ? tile<R, V>(i) : tile_of<V, R - 1>(rows, i);
  }

  void rows(long begin, long end) const {  // in tiles of nearly equal height
    const long count = end - begin, tiles = (count + TILE_ROWS - 1) / TILE_ROWS;
    for (long t = 0; t < tiles; t++) {
      const long i = begin + count * t / tiles, height = begin + count * (t + 1) / tiles - i;
      N - j > LANES ? tile_of<2>(height, i) : tile_of<1>(height, i);
    }
  }
};

}  // namespace tidelog
