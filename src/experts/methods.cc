#include "experts/methods.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/error.h"
#include "experts/orthogonal.h"

namespace some {
namespace {

// Four numbers of a stream share one random block. Written so that the compiler sees this and generates the block once:
// the same values as one by one, in a sixth of the time.
void fill_default(const RandomStream& stream, std::uint64_t first, std::size_t count, float bound, float* out) {
  std::size_t j = 0;
  for (; j < count && ((first + j) & 3) != 0; ++j) out[j] = default_element(stream, first + j, bound);
  for (; j + 4 <= count; j += 4) {
    const std::uint64_t block = (first + j) & ~std::uint64_t{3};
    out[j] = default_element(stream, block, bound);
    out[j + 1] = default_element(stream, block | 1, bound);
    out[j + 2] = default_element(stream, block | 2, bound);
    out[j + 3] = default_element(stream, block | 3, bound);
  }
  for (; j < count; ++j) out[j] = default_element(stream, first + j, bound);
}

void drop_half_of_columns(const RandomStream& drops, std::uint64_t first, int rows, int cols, float* out) {
  using Entry = std::pair<std::uint64_t, int>;  // (priority, row), compared in this order
  const int dropped = dropped_in_column(rows);
  constexpr int kColumns = 8;  // columns at a time, because a cache line holds several
  std::vector<Entry> entries(static_cast<std::size_t>(kColumns) * rows);
  for (int column = 0; column < cols; column += kColumns) {
    const int width = std::min(kColumns, cols - column);
    for (int row = 0; row < rows; ++row) {
      const std::uint64_t index = first + static_cast<std::uint64_t>(row) * cols + column;
      for (int c = 0; c < width; ++c)
        entries[static_cast<std::size_t>(c) * rows + row] = {drop_priority(drops, index + c), row};
    }
    for (int c = 0; c < width; ++c) {
      const auto begin = entries.begin() + static_cast<std::ptrdiff_t>(c) * rows;
      std::nth_element(begin, begin + (dropped - 1), begin + rows);
      for (auto entry = begin; entry != begin + dropped; ++entry)
        out[static_cast<std::ptrdiff_t>(entry->second) * cols + column + c] = 0.0f;
    }
  }
}

void draw_default(const MatrixDraw& draw, std::uint64_t first, float* out) {
  fill_default(draw.stream, first, static_cast<std::size_t>(draw.rows) * draw.cols, default_bound(draw.cols), out);
}

void draw_orthogonal(const MatrixDraw& draw, std::uint64_t first, float* out) {
  const std::size_t count = static_cast<std::size_t>(draw.rows) * draw.cols;
  for (std::size_t j = 0; j < count; ++j) out[j] = gaussian_element(draw.stream, first + j);
  cpu::orthogonalize(out, draw.rows, draw.cols);
}

void draw_sparse(const MatrixDraw& draw, std::uint64_t first, float* out) {
  const std::size_t count = static_cast<std::size_t>(draw.rows) * draw.cols;
  for (std::size_t j = 0; j < count; ++j) out[j] = sparse_element(draw.stream, first + j);
  drop_half_of_columns(draw.drops, first, draw.rows, draw.cols, out);
}

constexpr std::array methods = {
    LibraryMethod{"default", draw_default},
    LibraryMethod{"orthogonal", draw_orthogonal},
    LibraryMethod{"sparse", draw_sparse},
};

}  // namespace

std::vector<std::string> library_methods() {
  std::vector<std::string> names;
  for (const LibraryMethod& one : methods) names.push_back(one.name);
  return names;
}

const LibraryMethod& check_library(const LibrarySpec& spec) {
  if (spec.experts < 1 || spec.d_model < 1 || spec.d_ffn < 1) {
    bad_input(Code::library_invalid,
              "an expert library requires at least one expert, d_model >= 1 and d_ffn >= 1; got {} experts, d_model "
              "{}, d_ffn {}",
              spec.experts, spec.d_model, spec.d_ffn);
  }
  for (const LibraryMethod& one : methods) {
    if (spec.method == one.name) return one;
  }
  bad_input(Code::library_invalid, "{} = \"{}\" is not an expert library; choose one of {}", "some.init", spec.method,
            fmt::join(library_methods(), ", "));
}

}  // namespace some
