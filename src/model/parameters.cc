#include "model/parameters.h"

#include <cmath>

#include "core/old_names.h"
#include "core/random.h"
#include "core/threads.h"
#include "model/declaration.h"
#include "ops/elementwise.h"

namespace some {
namespace {

// Alignment of tensors, in elements: every view is aligned for vector loads in every precision.
constexpr std::int64_t alignment = 64;

template <typename T>
void draw(Threads& threads, const ParameterStore::Entry& entry, std::uint64_t seed, T* out) {
  const RandomStream stream = random_stream(seed, first_tensor_name(entry.name));
  const std::int64_t n = entry.shape.elements();
  const T scale = static_cast<T>(entry.initial.scale);
  parallel_chunks(threads, n, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      switch (entry.initial.kind) {
        case Initial::Kind::zero:
        case Initial::Kind::library: out[i] = 0; break;  // the library is generated separately
        case Initial::Kind::one: out[i] = 1; break;
        case Initial::Kind::constant: out[i] = scale; break;
        case Initial::Kind::identity: out[i] = i / entry.shape[1] == i % entry.shape[1] ? T{1} : T{0}; break;
        // Rounded to float first, so that runs in all precisions start from the same numbers.
        case Initial::Kind::uniform: out[i] = static_cast<float>(entry.initial.scale) * stream.symmetric(i); break;
        case Initial::Kind::normal: out[i] = static_cast<float>(entry.initial.scale) * stream.normal(i); break;
      }
    }
  });
}

}  // namespace

void ParameterStore::declare(const Parameter& parameter) {
  const std::int64_t n = parameter.count();
  index_[parameter.name] = entries_.size();
  entries_.push_back({parameter.name, parameter.shape, size_, parameter.initial, parameter.layer, parameter.row_sums});
  size_ += (n + alignment - 1) / alignment * alignment;
  parameters_ += n;
}

void ParameterStore::allocate(Context& ctx, bool training) {
  value = Tensor::zeros({size_}, ctx.master, ctx.device);
  compute = ctx.compute == ctx.master ? value : Tensor::zeros({size_}, ctx.compute, ctx.device);
  if (training) {
    grad = Tensor::zeros({size_}, ctx.master, ctx.device);
    first = Tensor::zeros({size_}, ctx.master, ctx.device);
    second = Tensor::zeros({size_}, ctx.master, ctx.device);
  }
}

void ParameterStore::draw_initial_values(Context& ctx, std::uint64_t seed) {
  Tensor host = Tensor::zeros({size_}, ctx.master);
  for (const Entry& entry : entries_) {
    if (ctx.master == DType::f64)
      draw(*ctx.threads, entry, seed, host.data<double>() + entry.offset);
    else
      draw(*ctx.threads, entry, seed, host.data<float>() + entry.offset);
  }
  value.copy_from(host);
  refresh_compute(ctx);
}

Param ParameterStore::param(const std::string& name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) failed(Code::parameter_unknown, "parameter {} not found in the model", name);
  const Entry& entry = entries_[found->second];
  Param param{view(value, entry), view(compute, entry), Tensor()};
  if (grad) param.grad = view(grad, entry);
  return param;
}

void ParameterStore::set(Context& ctx, const std::string& name, const Tensor& values) {
  Param target = param(name);
  if (values.shape() != target.value.shape()) {
    bad_input(Code::model_mismatch, "parameter {} has shape {}, but the model requires {}", name, values.shape().text(),
              target.value.shape().text());
  }
  target.value.copy_from(values.to(ctx.master));
}

void ParameterStore::refresh_compute(Context& ctx) {
  if (compute.raw() != value.raw()) convert(ctx, value, compute);
}

}  // namespace some
