// Block Gram-Schmidt in the order fixed by orthogonal.h. A panel is stored as [tall][16] doubles: four vectors of four
// lanes per row. Each lane is a separate chain, so vectorization does not change the order of roundings. A matrix of
// 1024 x 512 takes 1.1 GFLOP; processing three rows or columns at a time keeps twelve chains in flight, which hides
// their latency.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "experts/orthogonal.h"

#if defined(__FMA__)
#include <immintrin.h>
#endif

namespace some::cpu {
namespace {

constexpr int kLanes = 4;
constexpr int kVectors = kOrthogonalPanel / kLanes;
typedef double Lanes __attribute__((vector_size(kLanes * sizeof(double))));

inline Lanes all(double value) { return Lanes{value, value, value, value}; }

inline Lanes multiply_add(Lanes a, Lanes b, Lanes c) {
#if defined(__FMA__)
  return reinterpret_cast<Lanes>(
      _mm256_fmadd_pd(reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b), reinterpret_cast<__m256d>(c)));
#else
  for (int lane = 0; lane < kLanes; ++lane) c[lane] = std::fma(a[lane], b[lane], c[lane]);
  return c;
#endif
}

struct Row {
  Lanes part[kVectors];
};
static_assert(sizeof(Row) == kOrthogonalPanel * sizeof(double));

inline double element(const Row& row, int column) { return row.part[column / kLanes][column % kLanes]; }

// Step 1 for `Columns` columns of one finished panel: s[j] = sum_i q[i][first + j] * p[i].
template <int Columns>
void project(const Row* q, const Row* p, int tall, int first, Row* s) {
  Row sum[Columns] = {};
  const double* factor = reinterpret_cast<const double*>(q) + first;
  for (int i = 0; i < tall; ++i, factor += kOrthogonalPanel) {
    for (int j = 0; j < Columns; ++j) {
      const Lanes broadcast = all(factor[j]);
      for (int v = 0; v < kVectors; ++v) sum[j].part[v] = multiply_add(broadcast, p[i].part[v], sum[j].part[v]);
    }
  }
  for (int j = 0; j < Columns; ++j) s[first + j] = sum[j];
}

// Step 2 for `Rows` rows of the panel: p[i] -= sum_j q[i][j] * s[j], all finished panels in order.
template <int Rows>
void subtract(const Row* finished, int panels, int tall, int first, const Row* s, Row* p) {
  Row sum[Rows];
  for (int i = 0; i < Rows; ++i) sum[i] = p[first + i];
  for (int panel = 0; panel < panels; ++panel) {
    const double* q = reinterpret_cast<const double*>(finished + static_cast<std::ptrdiff_t>(panel) * tall + first);
    const Row* factor = s + static_cast<std::ptrdiff_t>(panel) * kOrthogonalPanel;
    for (int j = 0; j < kOrthogonalPanel; ++j) {
      for (int i = 0; i < Rows; ++i) {
        const Lanes broadcast = all(-q[i * kOrthogonalPanel + j]);
        for (int v = 0; v < kVectors; ++v) sum[i].part[v] = multiply_add(broadcast, factor[j].part[v], sum[i].part[v]);
      }
    }
  }
  for (int i = 0; i < Rows; ++i) p[first + i] = sum[i];
}

// Step 3. Lanes of columns up to j are computed but not used: they do not affect the other chains.
void orthonormalize_panel(Row* p, int tall, int width) {
  for (int j = 0; j < width; ++j) {
    double square = 0.0;
    for (int i = 0; i < tall; ++i) square = std::fma(element(p[i], j), element(p[i], j), square);
    const double scale = inverse_length(square);
    Row r = {};
    for (int i = 0; i < tall; ++i) {
      const double unit = element(p[i], j) * scale;
      p[i].part[j / kLanes][j % kLanes] = unit;
      for (int v = 0; v < kVectors; ++v) r.part[v] = multiply_add(all(unit), p[i].part[v], r.part[v]);
    }
    for (int l = 0; l <= j; ++l)
      r.part[l / kLanes][l % kLanes] = 0.0;  // finished columns stay: x - unit * 0 = x (but for the sign of 0)
    for (int i = 0; i < tall; ++i) {
      const Lanes unit = all(-element(p[i], j));
      for (int v = 0; v < kVectors; ++v) p[i].part[v] = multiply_add(unit, r.part[v], p[i].part[v]);
    }
  }
}

void orthonormalize_against(const Row* finished, int panels, int tall, int width, Row* s, Row* p) {
  for (int pass = 0; pass < kOrthogonalPasses; ++pass) {
    for (int panel = 0; panel < panels; ++panel) {
      const Row* q = finished + static_cast<std::ptrdiff_t>(panel) * tall;
      Row* target = s + static_cast<std::ptrdiff_t>(panel) * kOrthogonalPanel;
      for (int first = 0; first < 15; first += 3) project<3>(q, p, tall, first, target);
      project<1>(q, p, tall, 15, target);
    }
    int row = 0;
    for (; row + 3 <= tall; row += 3) subtract<3>(finished, panels, tall, row, s, p);
    for (; row < tall; ++row) subtract<1>(finished, panels, tall, row, s, p);
    orthonormalize_panel(p, tall, width);
  }
}

}  // namespace

void orthogonalize(float* matrix, int rows, int cols) {
  const int tall = std::max(rows, cols), wide = std::min(rows, cols);
  const std::ptrdiff_t row_step = rows >= cols ? cols : 1, column_step = rows >= cols ? 1 : cols;
  const int panels = (wide + kOrthogonalPanel - 1) / kOrthogonalPanel;
  std::vector<Row> storage(static_cast<std::size_t>(panels) * tall),
      s(static_cast<std::size_t>(panels) * kOrthogonalPanel);
  for (int panel = 0; panel < panels; ++panel) {
    const int first = panel * kOrthogonalPanel, width = std::min(kOrthogonalPanel, wide - first);
    Row* p = storage.data() + static_cast<std::ptrdiff_t>(panel) * tall;
    for (int i = 0; i < tall; ++i) {
      for (int l = 0; l < width; ++l)
        p[i].part[l / kLanes][l % kLanes] = matrix[i * row_step + (first + l) * column_step];
    }
    orthonormalize_against(storage.data(), panel, tall, width, s.data(), p);
    for (int i = 0; i < tall; ++i) {
      for (int l = 0; l < width; ++l)
        matrix[i * row_step + (first + l) * column_step] = orthogonal_result(element(p[i], l));
    }
  }
}

}  // namespace some::cpu
