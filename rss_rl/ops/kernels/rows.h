// Row-by-row kernels.

#pragma once

#include "vectors.h"

namespace rss {

constexpr std::int64_t kRows = 64;  // of a piece of work, which has its own sums over rows

// Calls row(r, piece) for every row, those of a piece in order.
template <typename Row>
Outcome each_row(std::int64_t rows, std::int64_t threads, const Row& row) {
  return run((rows + kRows - 1) / kRows, threads, NoMemory(), [&](std::int64_t piece, NoMemory&) {
    for (std::int64_t r = piece * kRows; r < std::min(rows, (piece + 1) * kRows); ++r) row(r, piece);
  });
}

// Adds to the sum [D] of a piece of rows, from feature i on; the piece's first row initialises it.
template <typename T>
inline void add_up(T* sum, std::int64_t row, std::int64_t i, std::int64_t left,
                   typename Lanes<T>::Vector vector) {
  if (row % kRows != 0) vector += load_some(sum + i, left);
  store_some(sum + i, left, vector);
}

}  // namespace rss
