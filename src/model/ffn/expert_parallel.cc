#include "model/ffn/expert_parallel.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/conv.h"
#include "ops/elementwise.h"
#include "runtime/staging.h"

namespace some {
namespace {

Tensor on_host(const Tensor& tensor) {
  return tensor.device().is_cpu() || tensor.elements() == 0 ? tensor : tensor.to(Device::cpu);
}

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// All-to-all: sends rows to the ranks, rows_out[r] each, and returns the received rows, rows_in[r] each.
Tensor exchange_rows(Context& ctx, const Tensor& rows, const std::vector<std::int64_t>& rows_out,
                     const std::vector<std::int64_t>& rows_in) {
  const Tensor received = ctx.scratch({sum_of(rows_in), rows.dim(1)}, rows.dtype());
  ctx.expert_group.all_to_all(rows, rows_out, received, rows_in);
  return received;
}

Tensor gathered(Context& ctx, const Tensor& from, const Tensor& rows) {
  Tensor out = ctx.scratch({rows.elements(), from.dim(1)}, from.dtype());
  if (rows.elements() > 0) gather_rows(ctx, from, rows, out);
  return out;
}

// Forward dispatch: sends a row of the tokens' hidden states for each assignment, and returns one row per received
// assignment.
Tensor dispatch_states(Context& ctx, const ExpertParallelTape& tape, const Tensor& states) {
  Tensor out = ctx.scratch({tape.arrived(), states.dim(1)}, states.dtype());
  const ArenaScope scope(*ctx.arena);
  const Tensor received = exchange_rows(ctx, gathered(ctx, states, tape.rows), tape.rows_out, tape.rows_in);
  if (tape.arrived() > 0) gather_rows(ctx, received, tape.request_rows, out);
  return out;
}

// Combine: returns one row per received assignment to the rank of its token, in the order in which the assignments left
// (tape.place).
Tensor return_rows(Context& ctx, const ExpertParallelTape& tape, const Tensor& rows) {
  return exchange_rows(ctx, rows, tape.choices_in, tape.choices_out);
}

// Represents each assignment as the only one of a token of its own. Contains only the arguments that
// modulate_experts_forward and modulate_experts_backward read.
Modulation single_choices(const ExpertParallelTape& tape, const Tensor& inputs, const Tensor& w1) {
  Modulation out;
  out.states = inputs;
  out.w1 = w1;
  out.plan = tape.plan;
  out.routing.indices = tape.experts;
  out.routing.gates = tape.gates;
  return out;
}

// out = the returned rows in the order of the layer's dispatch plan.
void put_in_plan_order(Context& ctx, const ExpertParallelTape& tape, const DispatchPlan& plan, const Tensor& rows,
                       Tensor& out) {
  const ArenaScope scope(*ctx.arena);
  scatter_rows(ctx, gathered(ctx, rows, tape.place.reshape({rows.dim(0)})), plan.place, out);
}

}  // namespace

ExpertParallelTape expert_parallel_dispatch(Context& ctx, const ModelConfig& config, const Routing& routing,
                                            const Tensor& past) {
  const int experts = config.experts, token_shift = config.modulates() ? config.token_shift : 0;
  const Group& group = ctx.expert_group;
  const Mesh mesh = ctx.mesh();
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::int64_t tokens = routing.indices.dim(0), k = routing.indices.dim(1), choices = tokens * k;
  if (choices >= std::int64_t{1} << 31)
    failed(Code::size_unsupported, "a batch of {} tokens is too large for expert parallelism", tokens);
  const Tensor indices = on_host(routing.indices), gates = on_host(routing.gates),
               table = token_shift > 0 ? on_host(past) : Tensor();
  const auto* const expert_of = indices.data<std::int32_t>();
  const std::int64_t width = token_shift > 0 && tokens > 0 ? table.dim(1) : 0;
  const auto state_of = [&](std::int64_t choice) {
    const std::int64_t t = choice / k;
    if (token_shift == 0) return static_cast<std::int32_t>(t);
    return table.data<std::int32_t>()[t * width + 1 + expert_of[choice] % token_shift];
  };

  std::vector<std::int32_t> owner(static_cast<std::size_t>(experts));
  std::vector<Block> local_experts;
  for (int r = 0; r < group.size(); ++r) {
    local_experts.push_back(mesh.experts(r, experts));
    std::fill(owner.begin() + local_experts.back().begin, owner.begin() + local_experts.back().end, r);
  }
  const auto rank_of = [&](std::int64_t choice) {
    return static_cast<std::size_t>(owner[static_cast<std::size_t>(expert_of[choice])]);
  };
  ExpertParallelTape tape;
  tape.choices_out.assign(ranks, 0);
  std::int32_t last_state = -1;
  for (std::int64_t c = 0; c < choices; ++c) {
    ++tape.choices_out[rank_of(c)];
    last_state = std::max(last_state, state_of(c));
  }
  std::vector<std::int64_t> next(ranks, 0);
  std::partial_sum(tape.choices_out.begin(), tape.choices_out.end() - 1, next.begin() + 1);
  std::vector<std::int32_t> place(static_cast<std::size_t>(choices)), order(static_cast<std::size_t>(choices));
  for (std::int64_t c = 0; c < choices; ++c) {
    const std::int64_t at = next[rank_of(c)]++;
    place[static_cast<std::size_t>(c)] = static_cast<std::int32_t>(at);
    order[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(c);
  }

  // Per assignment: index of the expert on its rank, index of the row sent there, and the bits of the gate.
  const std::size_t gate_bytes = size_of(ctx.master), words = 2 + gate_bytes / sizeof(std::int32_t);
  std::vector<std::int32_t> requests(static_cast<std::size_t>(choices) * words), rows;
  std::vector<std::int32_t> row_at(static_cast<std::size_t>(last_state) + 2, -1);  // per state; -1: not sent
  std::vector<std::int64_t> numbers;
  std::size_t at = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto first = static_cast<std::int32_t>(rows.size());
    for (const std::size_t end = at + static_cast<std::size_t>(tape.choices_out[r]); at < end; ++at) {
      const std::int32_t choice = order[at], state = state_of(choice);
      std::int32_t& row = row_at[static_cast<std::size_t>(state + 1)];
      if (row < first) {  // not sent to this rank yet
        row = static_cast<std::int32_t>(rows.size());
        rows.push_back(state);
      }
      std::int32_t* const request = requests.data() + at * words;
      request[0] = expert_of[choice] - static_cast<std::int32_t>(local_experts[r].begin);
      request[1] = row - first;
      std::memcpy(request + 2, static_cast<const char*>(gates.raw()) + static_cast<std::size_t>(choice) * gate_bytes,
                  gate_bytes);
    }
    tape.rows_out.push_back(static_cast<std::int64_t>(rows.size()) - first);
    numbers.push_back(tape.choices_out[r] << 32 | tape.rows_out.back());
  }
  for (const std::int64_t both : group.all_to_all(numbers)) {
    tape.choices_in.push_back(both >> 32);
    tape.rows_in.push_back(both & 0xffffffff);
  }

  const std::int64_t arrived = sum_of(tape.choices_in), columns = static_cast<std::int64_t>(words);
  std::vector<std::int32_t> received(static_cast<std::size_t>(arrived) * words);
  const auto table_of = [&](std::vector<std::int32_t>& values) {
    return Tensor::wrap(values.data(), {static_cast<std::int64_t>(values.size()) / columns, columns}, DType::i32,
                        Device::cpu, nullptr);
  };
  group.all_to_all(table_of(requests), tape.choices_out, table_of(received), tape.choices_in);
  std::vector<std::int32_t> expert_numbers, request_rows, weights;
  std::int32_t first_row = 0;
  const std::int32_t* request = received.data();
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::int64_t i = 0; i < tape.choices_in[r]; ++i, request += words) {
      expert_numbers.push_back(request[0]);
      request_rows.push_back(first_row + request[1]);
      weights.insert(weights.end(), request + 2, request + words);
    }
    first_row += static_cast<std::int32_t>(tape.rows_in[r]);
  }
  const std::vector<Tensor> parts = ctx.staging->upload(ctx, {&rows, &place, &request_rows, &expert_numbers, &weights});
  tape.rows = parts[0];
  tape.place = parts[1].reshape({tokens, k});
  tape.request_rows = parts[2];
  tape.experts = parts[3].reshape({arrived, 1});
  tape.gates = Tensor::wrap(parts[4].raw(), {arrived, 1}, ctx.master, ctx.device, nullptr);
  if (arrived > 0) {
    const Block mine = local_experts[static_cast<std::size_t>(group.rank())];
    tape.plan = make_dispatch(ctx, tape.experts, static_cast<int>(mine.count()));
  }
  return tape;
}

void expert_parallel_forward(Context& ctx, const ExpertWeights& weights, const ExpertParallelKeeps& keeps,
                             const Tensor& seen, const Routing& routing, ExpertParallelTape& tape, Tensor& mixed) {
  const std::int64_t arrived = tape.arrived(), d = seen.dim(1);
  if (keeps.inputs) tape.inputs = dispatch_states(ctx, tape, seen);
  if (arrived > 0) {
    tape.choices.pre = ctx.scratch({arrived, weights.w1.dim(1)});
    if (keeps.outputs) tape.choices.outputs = ctx.scratch({arrived, d});
    if (weights.low1) tape.choices.low1 = ctx.scratch({arrived, weights.low1.rank()});
    if (weights.low2) tape.choices.low2 = ctx.scratch({arrived, weights.low2.rank()});
  }
  const ArenaScope scope(*ctx.arena);
  const Tensor inputs = keeps.inputs ? tape.inputs : dispatch_states(ctx, tape, seen);
  Tensor answers = ctx.scratch({arrived, mixed.dim(1)}), ones = ctx.scratch({arrived, 1}, ctx.master);
  if (arrived > 0) {
    fill(ctx, 1, ones);  // gates are applied when the outputs are summed
    experts_forward(ctx, inputs, weights, tape.plan, ones, tape.choices, answers);
  }
  const Tensor back = return_rows(ctx, tape, answers);
  if (mixed.dim(0) > 0) combine_rows(ctx, back, tape.place, &routing.gates, Into::overwrite, mixed);
}

void expert_parallel_backward(Context& ctx, const Tensor& dmixed, const ExpertWeights& weights,
                              ExpertParallelTape& tape, Tensor& dseen, Into into, Tensor& dgates, ExpertGrads* grads) {
  const ArenaScope scope(*ctx.arena);
  const std::int64_t arrived = tape.arrived();
  const Tensor upstream = dispatch_states(ctx, tape, dmixed);
  Tensor dinputs = ctx.scratch({arrived, dseen.dim(1)}), dweights = ctx.scratch({arrived, 1}, ctx.master);
  if (arrived > 0) {
    const Tensor& inputs = tape.inputs ? tape.inputs : dinputs;  // frozen experts use only its shape
    experts_backward(ctx, {upstream, inputs, weights, tape.plan, tape.gates, tape.choices, dinputs, Into::overwrite,
                           dweights, grads});
  }
  const Tensor back = return_rows(ctx, tape, dinputs), gates_back = return_rows(ctx, tape, dweights);
  const std::int64_t choices = dgates.elements();
  if (choices == 0) return;
  combine_rows(ctx, back, tape.place, nullptr, into, dseen);
  Tensor flat = dgates.reshape({choices, 1});
  gather_rows(ctx, gates_back, tape.place.reshape({choices}), flat);
}

void expert_parallel_modulation_forward(Context& ctx, const Modulation& in, const Tensor& w1,
                                        const ExpertParallelKeeps& keeps, ExpertParallelTape& tape, Tensor& pre) {
  if (keeps.inputs) tape.inputs = dispatch_states(ctx, tape, in.states);
  const ArenaScope scope(*ctx.arena);
  const Tensor inputs = keeps.inputs ? tape.inputs : dispatch_states(ctx, tape, in.states);
  Tensor activations = ctx.scratch({tape.arrived(), w1.dim(1)}), answers = activations;
  if (tape.arrived() > 0) {
    modulate_experts_forward(ctx, single_choices(tape, inputs, w1), activations);
    answers = gathered(ctx, activations, tape.plan.place);
  }
  const Tensor back = return_rows(ctx, tape, answers);
  if (back.dim(0) > 0) put_in_plan_order(ctx, tape, in.plan, back, pre);
}

void expert_parallel_modulation_backward(Context& ctx, const Modulation& in, const Tensor& w1, const Tensor& dpre,
                                         ExpertParallelTape& tape, Tensor& dstates, ExpertGrads* grads) {
  const ArenaScope scope(*ctx.arena);
  const std::int64_t choices = dpre.dim(0);
  Tensor order = ctx.scratch(dpre.shape());
  if (choices > 0) scatter_rows(ctx, gathered(ctx, dpre, in.plan.place), tape.place.reshape({choices}), order);
  const Tensor received = exchange_rows(ctx, order, tape.choices_out, tape.choices_in);
  Tensor dinputs = ctx.scratch({tape.arrived(), dstates.dim(1)});
  if (tape.arrived() > 0) {
    fill(ctx, 0, dinputs);
    const Modulation own = single_choices(tape, tape.inputs ? tape.inputs : dinputs, w1);
    modulate_experts_backward(ctx, own, gathered(ctx, received, tape.plan.order), dinputs, grads);
  }
  const Tensor back = return_rows(ctx, tape, dinputs);
  if (choices == 0) return;
  Tensor rows = ctx.scratch(back.shape());
  put_in_plan_order(ctx, tape, in.plan, back, rows);
  scatter_add_states(ctx, in, rows, dstates);
}

}  // namespace some
