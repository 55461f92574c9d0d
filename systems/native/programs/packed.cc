#include "packed.h"

#include <omp.h>

#include <array>
#include <cstring>
#include <utility>

namespace {

// BLOCK rows of a panel's two vectors are summed in registers. Up to FEW rows would leave the units
// that add waiting for each other, so they are multiplied by GROUP panels at once.
#ifdef __AVX512F__
constexpr Index LANES = 16, BLOCK = 12;
#else
constexpr Index LANES = 8, BLOCK = 6;
#endif
constexpr Index WIDTH = 2 * LANES, GROUP = 4, FEW = 2;
typedef float Vector __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

const Vector& as_vector(const float* at) { return *reinterpret_cast<const Vector*>(at); }
Vector& as_vector(float* at) { return *reinterpret_cast<Vector*>(at); }

// c (R, P * WIDTH) = start + a (R, k) times P panels (k, WIDTH); row r of the start is at r * stride.
template <Index R, Index P>
void multiply_block(const float* a, Index a_stride, const float* panels, Index k,
                    const float* start, Index start_stride, float* c, Index c_stride) {
  Vector sums[R][2 * P];
#pragma GCC unroll 12
  for (Index r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (Index v = 0; v < 2 * P; ++v)
      sums[r][v] = as_vector(start + r * start_stride + v * LANES);
  for (Index j = 0; j < k; ++j, panels += WIDTH) {
    Vector w[2 * P];
#pragma GCC unroll 8
    for (Index v = 0; v < 2 * P; ++v)
      w[v] = as_vector(panels + v / 2 * k * WIDTH + v % 2 * LANES);
#pragma GCC unroll 12
    for (Index r = 0; r < R; ++r) {
      const float x = a[r * a_stride + j];
#pragma GCC unroll 8
      for (Index v = 0; v < 2 * P; ++v) sums[r][v] += x * w[v];
    }
  }
#pragma GCC unroll 12
  for (Index r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (Index v = 0; v < 2 * P; ++v) as_vector(c + r * c_stride + v * LANES) = sums[r][v];
}

using Block = decltype(&multiply_block<1, 1>);
template <Index P, std::size_t... R>
constexpr std::array<Block, sizeof...(R)> list_blocks(std::index_sequence<R...>) {
  return {&multiply_block<R + 1, P>...};
}
constexpr auto BLOCKS = list_blocks<1>(std::make_index_sequence<BLOCK>());
constexpr auto WIDE_BLOCKS = list_blocks<GROUP>(std::make_index_sequence<FEW>());

}  // namespace

void PackedMatrix::pack(const Matrix& w, bool transposed) {
  constexpr Index TILE = 16;  // rows of a panel that are written at once
  rows_ = transposed ? w.columns : w.rows, columns_ = transposed ? w.rows : w.columns;
  const Index n_panels = (columns_ + WIDTH - 1) / WIDTH;
  panels_ = memory_.take(n_panels * rows_, WIDTH).at;
#pragma omp parallel for if (omp_get_max_threads() > 1)
  for (Index p = 0; p < n_panels; ++p) {
    float* to = panels_ + p * rows_ * WIDTH;
    const Index first = p * WIDTH, n = std::min(WIDTH, columns_ - first);
    if (n < WIDTH) std::memset(to, 0, rows_ * WIDTH * sizeof(float));
    if (!transposed) {
      for (Index j = 0; j < rows_; ++j) std::copy_n(w.row(j) + first, n, to + j * WIDTH);
      continue;
    }
    for (Index tile = 0; tile < rows_; tile += TILE)
      for (Index column = 0; column < n; ++column)
        for (Index j = tile; j < std::min(tile + TILE, rows_); ++j)
          to[j * WIDTH + column] = w.row(first + column)[j];
  }
}

void PackedMatrix::run(const Matrix& a, const Matrix& c, Start start, const float* row) const {
  if (a.rows == 0) return;
#pragma omp parallel for if (omp_get_max_threads() > 1)
  for (Index first = 0; first < columns_; first += GROUP * WIDTH)
    run_group(a, c, start, row, first);
}

void PackedMatrix::run_group(const Matrix& a, const Matrix& c, Start start, const float* row,
                             Index first) const {
  const bool adds = start == Start::itself;
  alignas(64) float edge[BLOCK * WIDTH], from[GROUP * WIDTH] = {};
  const Index end = std::min(first + GROUP * WIDTH, columns_);
  if (start == Start::row) std::copy(row + first, row + end, from);
  if (a.rows <= FEW && end - first == GROUP * WIDTH) {
    float* to = c.at + first;
    WIDE_BLOCKS[a.rows - 1](a.at, a.stride, panels_ + first * rows_, rows_, adds ? to : from,
                            adds ? c.stride : 0, to, c.stride);
    return;
  }
  const Index n_blocks = (a.rows + BLOCK - 1) / BLOCK, size = (a.rows + n_blocks - 1) / n_blocks;
  for (Index column = first; column < end; column += WIDTH) {
    const Index n = std::min(WIDTH, end - column);
    for (Index r = 0; r < a.rows; r += size) {
      const Matrix own = c.rows_from(r, std::min(size, a.rows - r)).columns_from(column, n);
      const Matrix to = n == WIDTH ? own : Matrix{edge, own.rows, n, WIDTH};
      if (n < WIDTH && adds) copy(own, to);
      BLOCKS[own.rows - 1](a.row(r), a.stride, panels_ + column * rows_, rows_,
                           adds ? to.at : from + column - first, adds ? to.stride : 0, to.at,
                           to.stride);
      if (n < WIDTH) copy(to, own);
    }
  }
}
