// The whole model: gradients for every setting compared with finite differences, unpadded with padded batches, numbers
// of threads, the KV cache, sizes.
#include "model/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/random.h"
#include "core/threads.h"
#include "model/operations.h"
#include "model/sample.h"
#include "ops/elementwise.h"

namespace some {
namespace {

double loss_of(Model& model, const Batch& batch) {
  Context& ctx = model.context();
  ctx.arena->reset();
  Schedule schedule(model.context());
  model.clear_gradients(model.context());
  model.set_dropout_step(1);
  StepSettings pass;
  pass.loss_scale = 1.0 / static_cast<double>(batch.predicted);
  double sum = 0;
  for (const double nll : read_vector(model.train_pass(schedule, upload(ctx, batch), pass))) sum += nll;
  return sum * pass.loss_scale + read_vector(model.auxiliary_loss())[0];
}

class ModelGradient : public testing::TestWithParam<Variant> {};

TEST_P(ModelGradient, MatchesFiniteDifferences) {
  ModelConfig config = small_config();
  GetParam().change(config);
  std::shared_ptr<Context> ctx = make_context("cpu", "f64");
  Model model(ctx, config, true);
  ParameterStore& p = model.parameters();
  // Perturbs parameters that start at zero or one, so that no gradient is zero by accident.
  const RandomStream noise = random_stream(9, "noise");
  double* values = p.value.data<double>();
  for (const auto& entry : p.entries()) {
    for (std::int64_t i = 0; i < entry.shape.elements(); ++i)
      values[entry.offset + i] += 0.1 * noise.symmetric(static_cast<std::uint64_t>(entry.offset + i));
  }
  const Batch batch = rows_batch(sample_rows, config.seq_len, false);
  loss_of(model, batch);
  const std::vector<double> gradient = read_vector(p.grad);
  for (const auto& entry : p.entries()) {
    const std::int64_t n = entry.shape.elements();
    for (int trial = 0; trial < 3; ++trial) {
      const std::int64_t at = entry.offset + noise.below(static_cast<std::uint64_t>(1000 + entry.offset + trial),
                                                         static_cast<std::uint32_t>(n));
      const double kept = values[at], h = 1e-5;
      values[at] = kept + h;
      const double up = loss_of(model, batch);
      values[at] = kept - h;
      const double down = loss_of(model, batch);
      values[at] = kept;
      const double expected = (up - down) / (2 * h);
      EXPECT_NEAR(gradient[static_cast<std::size_t>(at)], expected, 1e-6 * std::max(1.0, std::abs(expected)))
          << entry.name << " element " << at - entry.offset;
    }
  }
}

const auto variant_name = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Settings, ModelGradient, testing::ValuesIn(model_variants), variant_name);
INSTANTIATE_TEST_SUITE_P(
    MoreSettings, ModelGradient,
    testing::Values(
        Variant{"dense_pre", [](ModelConfig& c) { c.ffn = Ffn::dense, c.norm = Norm::pre; }},
        Variant{"one_expert", [](ModelConfig& c) { c.experts = c.top_k = 1; }},
        Variant{"modulated_gains",
                [](ModelConfig& c) { c.output_proj = OutputProj::modulated, c.use_library = false; }},
        Variant{"all_experts", [](ModelConfig& c) { c.top_k = c.experts; }},
        Variant{"entropy_band",
                [](ModelConfig& c) { c.entropy_low = 0.1, c.entropy_high = 0.2, c.entropy_coefficient = 3; }},
        Variant{"lora", [](ModelConfig& c) { c.training = ExpertTraining::lora, c.lora_rank = 2; }},
        Variant{"lora_features",
                [](ModelConfig& c) {
                  c.training = ExpertTraining::lora, c.lora_rank = 2, c.output_proj = OutputProj::features;
                }},
        Variant{"hadamard_lora",
                [](ModelConfig& c) { c.init = "hadamard", c.training = ExpertTraining::lora, c.lora_rank = 2; }},
        Variant{"wide_queries", [](ModelConfig& c) { c.query_dim = 13; }},
        Variant{"readin_full", [](ModelConfig& c) { c.input_proj = true, c.training = ExpertTraining::full; }},
        Variant{"everything",
                [](ModelConfig& c) {
                  c.norm = Norm::pre, c.position = Position::rope, c.ground = 0.2, c.query_dim = 5, c.input_proj = true,
                  c.output_proj = OutputProj::linear, c.temperature = Temperature::learned;
                  c.training = ExpertTraining::lora, c.lora_rank = 3, c.top_k = 3;
                }}),
    variant_name);

// The load-balancing loss is differentiated through the mean probabilities but not through the counts, which are
// piecewise constant. Finite differences agree as long as no assignment changes, which holds for small steps.
TEST(ModelBalance, GradientMatchesFiniteDifferences) {
  ModelConfig config = small_config();
  config.balance_loss = 0.5;
  std::shared_ptr<Context> ctx = make_context("cpu", "f64");
  Model model(ctx, config, true);
  const Batch batch = rows_batch(sample_rows, config.seq_len, false);
  loss_of(model, batch);
  Param weight = model.parameters().param("layers.1.router.1.weight");
  const std::vector<double> gradient = read_vector(weight.grad);
  for (const std::int64_t at : {0, 17, 40}) {
    double* value = weight.value.data<double>() + at;
    const double kept = *value, h = 1e-6;
    *value = kept + h;
    const double up = loss_of(model, batch);
    *value = kept - h;
    const double down = loss_of(model, batch);
    *value = kept;
    EXPECT_NEAR(gradient[static_cast<std::size_t>(at)], (up - down) / (2 * h), 1e-6);
  }
}

struct StepOutcome {
  std::vector<double> nll, gradient, keys, usage;
};

StepOutcome one_step(const ModelConfig& config, const Batch& batch, const std::string& precision, int threads = 0) {
  std::shared_ptr<Context> ctx = make_context("cpu", precision, make_host(threads));
  Model model(ctx, config, true);
  StepSettings pass;
  pass.loss_scale = 1.0 / static_cast<double>(batch.predicted);
  Schedule schedule(model.context());
  model.clear_gradients(model.context());
  model.clear_key_sums(model.context());
  StepOutcome out;
  pass.keys = model.plan_keys(0, 0);
  out.nll = read_vector(model.train_pass(schedule, upload(*ctx, batch), pass));
  out.gradient = read_vector(model.parameters().grad);
  model.update_key_stores(model.context(), pass.keys);
  for (Layer& layer : model.layers()) {
    for (const double k : read_vector(layer.keys.keys)) out.keys.push_back(k);
    for (const double u : read_vector(layer.keys.usage)) out.usage.push_back(u);
  }
  return out;
}

TEST(ModelBatches, PackedAndPaddedGiveTheSameLossGradientsAndKeys) {
  const ModelConfig config = small_config();
  const StepOutcome packed = one_step(config, rows_batch(sample_rows, config.seq_len, false), "f64");
  const StepOutcome padded = one_step(config, rows_batch(sample_rows, config.seq_len, true), "f64");
  std::vector<double> packed_losses, padded_losses;
  for (const double nll : packed.nll) {
    if (nll != 0) packed_losses.push_back(nll);
  }
  for (const double nll : padded.nll) {
    if (nll != 0) padded_losses.push_back(nll);
  }
  ASSERT_EQ(packed_losses.size(), padded_losses.size());
  for (std::size_t i = 0; i < packed_losses.size(); ++i) EXPECT_NEAR(packed_losses[i], padded_losses[i], 1e-12);
  ASSERT_EQ(packed.gradient.size(), padded.gradient.size());
  for (std::size_t i = 0; i < packed.gradient.size(); ++i)
    ASSERT_NEAR(packed.gradient[i], padded.gradient[i], 1e-12) << i;
  for (std::size_t i = 0; i < packed.keys.size(); ++i) ASSERT_NEAR(packed.keys[i], padded.keys[i], 1e-12) << i;
  EXPECT_EQ(packed.usage, padded.usage);
}

TEST(ModelThreads, ChangeNoBit) {
  ModelConfig config = small_config();
  config.d_model = 48;
  config.heads = 4;
  config.d_ffn = 40;
  config.seq_len = 60;
  std::vector<std::vector<std::int32_t>> rows;
  for (int r = 0; r < 9; ++r) {
    std::vector<std::int32_t> row;
    for (int p = 0; p < 20 + 5 * r; ++p) row.push_back(3 + (p * 7 + r) % 16);
    rows.push_back(row);
  }
  const Batch batch = rows_batch(rows, config.seq_len, false);
  const StepOutcome one = one_step(config, batch, "fp32", 1);
  for (const int threads : {2, 3, 5}) {
    const StepOutcome many = one_step(config, batch, "fp32", threads);
    EXPECT_EQ(one.nll, many.nll) << threads;
    EXPECT_EQ(one.gradient, many.gradient) << threads;
    EXPECT_EQ(one.keys, many.keys) << threads;
  }
}

TEST(ModelAccumulation, MicroBatchesChangeGradientsAndKeysOnlyByRounding) {
  const ModelConfig config = small_config();
  std::shared_ptr<Context> ctx = make_context("cpu", "f64");
  const Batch whole = rows_batch(sample_rows, config.seq_len, false);
  const StepOutcome together = one_step(config, whole, "f64");
  Model model(ctx, config, true);
  Schedule schedule(model.context());
  model.clear_gradients(model.context());
  model.clear_key_sums(model.context());
  StepSettings pass;
  pass.loss_scale = 1.0 / static_cast<double>(whole.predicted);
  pass.keys = model.plan_keys(0, 0);
  for (const auto& row : sample_rows) {
    ctx->arena->reset();
    const Batch part = rows_batch({row}, config.seq_len, false);
    model.train_pass(schedule, upload(*ctx, part), pass);
    pass.first_position += part.size();
  }
  model.update_key_stores(model.context(), pass.keys);
  const std::vector<double> gradient = read_vector(model.parameters().grad);
  for (std::size_t i = 0; i < gradient.size(); ++i) ASSERT_NEAR(gradient[i], together.gradient[i], 1e-12);
  std::size_t at = 0;
  for (Layer& layer : model.layers()) {
    for (const double k : read_vector(layer.keys.keys)) ASSERT_NEAR(k, together.keys[at++], 1e-12);
  }
}

// Neither loss is a mean over tokens, so the division of a step may change it; with equal parts it must not.
TEST(ModelAccumulation, ACoefficientMeansTheSameHoweverTheStepIsCut) {
  ModelConfig config = small_config();
  config.balance_loss = 0.5;
  config.entropy_low = 0.1, config.entropy_high = 0.2, config.entropy_coefficient = 3;
  std::shared_ptr<Context> ctx = make_context("cpu", "f64");
  std::vector<std::vector<std::int32_t>> twice = sample_rows;
  twice.insert(twice.end(), sample_rows.begin(), sample_rows.end());
  Model model(ctx, config, true);
  const auto outcome = [&](const std::vector<Batch>& parts) {
    Schedule schedule(model.context());
    model.clear_gradients(model.context());
    model.clear_key_sums(model.context());
    StepSettings pass;
    std::int64_t predicted = 0;
    for (const Batch& part : parts) predicted += part.predicted;
    pass.loss_scale = 1.0 / static_cast<double>(predicted);
    for (const Batch& part : parts) {
      ctx->arena->reset();
      model.train_pass(schedule, upload(*ctx, part), pass);
      pass.first_position += part.size();
    }
    std::vector<double> out = read_vector(model.parameters().grad);
    out.push_back(read_vector(model.auxiliary_loss())[0]);
    return out;
  };
  const Batch half = rows_batch(sample_rows, config.seq_len, false);
  const std::vector<double> together = outcome({rows_batch(twice, config.seq_len, false)}),
                            apart = outcome({half, half});
  EXPECT_GT(together.back(), 0);
  for (std::size_t i = 0; i < together.size(); ++i) ASSERT_NEAR(together[i], apart[i], 1e-12) << i;
}

// beta of a layer at a time of the run (spec 4.4), and a random subset of the positions (spec 4).
TEST(ModelKeys, BetaIsScaledByLayerAndTime) {
  ModelConfig config = small_config();
  config.layers = 2;
  config.keys.beta = 0.1;
  const auto keys_after = [&](const ModelConfig& changed, double progress) {
    std::shared_ptr<Context> ctx = make_context("cpu", "f64");
    Model model(ctx, changed, true);
    const Batch batch = rows_batch(sample_rows, changed.seq_len, false);
    StepSettings pass;
    pass.loss_scale = 1.0 / static_cast<double>(batch.predicted);
    Schedule schedule(model.context());
    model.clear_gradients(model.context());
    model.clear_key_sums(model.context());
    pass.keys = model.plan_keys(0, progress);
    model.train_pass(schedule, upload(*ctx, batch), pass);
    model.update_key_stores(model.context(), pass.keys);
    std::vector<std::vector<double>> out;
    for (Layer& layer : model.layers()) out.push_back(read_vector(layer.keys.keys));
    return out;
  };
  const auto with_beta = [&](double beta) {
    ModelConfig plain = config;
    plain.keys.beta = beta;
    return keys_after(plain, 0);
  };
  const auto full = with_beta(0.1), none = with_beta(0), third = with_beta(0.1 * 0.3 * 0.5);
  ASSERT_NE(full[0], none[0]);
  ModelConfig scaled = config;
  scaled.keys.beta_layer_scale = {0.0, 0.3};
  scaled.keys.beta_anneal = {AnnealShape::linear, 1.0, 0.0};
  EXPECT_EQ(keys_after(scaled, 0)[0], none[0]);
  EXPECT_EQ(keys_after(scaled, 1)[1], none[1]);
  const auto half_way = keys_after(scaled, 0.5);
  for (std::size_t i = 0; i < third[1].size(); ++i) EXPECT_NEAR(half_way[1][i], third[1][i], 1e-14);
  ModelConfig fraction = config;
  fraction.keys.update_fraction = 0.4;
  EXPECT_NE(keys_after(fraction, 0)[0], full[0]);
}

TEST(ModelDecode, AgreesWithTheWholePass) {
  for (const bool pre : {false, true}) {
    for (const bool rotary : {false, true}) {
      ModelConfig config = small_config();
      config.norm = pre ? Norm::pre : Norm::post;
      config.position = rotary ? Position::rope : Position::sinusoidal;
      config.ground = 0.2;
      config.query_dim = pre ? 3 : 0;
      config.input_proj = rotary;
      std::shared_ptr<Context> ctx = make_context("cpu", "f64");
      Model model(ctx, config, false);
      const std::vector<std::int32_t> row = {3, 9, 4, 11, 5, 17};
      const std::vector<double> whole =
          read_vector(model.logits(upload(*ctx, rows_batch({row}, config.seq_len, false)), {}));
      Model::Cache cache = model.make_cache(2, config.seq_len);
      // The first three tokens at once, then one by one, in the second slot.
      std::vector<double> last;
      for (std::size_t p = 2; p < row.size(); ++p) {
        ctx->arena->reset();
        const bool first = p == 2;
        const std::vector<std::int32_t> tokens =
            first ? std::vector<std::int32_t>(row.begin(), row.begin() + 3) : std::vector<std::int32_t>{row[p]};
        const std::vector<std::int32_t> slots(tokens.size(), 1);
        const std::vector<std::int32_t> positions =
            first ? std::vector<std::int32_t>{0, 1, 2} : std::vector<std::int32_t>{static_cast<std::int32_t>(p)};
        last = read_vector(
            model.decode(cache, tokens, slots, positions, {static_cast<std::int32_t>(tokens.size()) - 1}, {}));
        for (int v = 0; v < config.vocab; ++v) {
          ASSERT_NEAR(last[static_cast<std::size_t>(v)],
                      whole[p * static_cast<std::size_t>(config.vocab) + static_cast<std::size_t>(v)], 1e-10)
              << p;
        }
      }
    }
  }
}

// Blocks with convolution or token shift, with two interleaved sequences: each reads only its own states.
TEST(ModelDecode, ConvolvesLikeTheForwardPass) {
  const std::vector<std::string> names = {"dense_look_back", "readin_look_back", "modulated_look_back",
                                          "modulated_listen"};
  const std::vector<std::vector<std::int32_t>> rows = {{3, 9, 4, 11, 5, 17}, {8, 3, 3, 12, 7, 4}};
  int tried = 0;
  for (const Variant& variant : model_variants) {
    if (std::find(names.begin(), names.end(), variant.name) == names.end()) continue;
    SCOPED_TRACE(variant.name);
    ++tried;
    ModelConfig config = small_config();
    variant.change(config);
    std::shared_ptr<Context> ctx = make_context("cpu", "f64");
    Model model(ctx, config, false);
    for (const auto& entry : model.parameters().entries()) {  // the gains start at 0
      if (!entry.name.ends_with("conv.weight")) continue;
      Tensor taps = model.parameters().view(model.parameters().value, entry);
      for (std::int64_t i = 0; i < taps.elements(); ++i)
        taps.data<double>()[i] = 0.3 + 0.1 * static_cast<double>(i % 5);
    }
    const std::vector<double> whole =
        read_vector(model.logits(upload(*ctx, rows_batch(rows, config.seq_len, false)), {}));
    Model::Cache cache = model.make_cache(3, config.seq_len);
    const std::size_t length = rows[0].size(), vocab = static_cast<std::size_t>(config.vocab);
    for (std::size_t p = 1; p < length; ++p) {
      ctx->arena->reset();
      std::vector<std::int32_t> tokens, slots, positions, wanted;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        for (std::size_t q = p == 1 ? 0 : p; q <= p; ++q) {  // the first two at once
          tokens.push_back(rows[r][q]);
          slots.push_back(r == 0 ? 2 : 0);
          positions.push_back(static_cast<std::int32_t>(q));
        }
        wanted.push_back(static_cast<std::int32_t>(tokens.size()) - 1);
      }
      const std::vector<double> got = read_vector(model.decode(cache, tokens, slots, positions, wanted, {}));
      for (std::size_t r = 0; r < rows.size(); ++r) {
        for (std::size_t v = 0; v < vocab; ++v)
          ASSERT_NEAR(got[r * vocab + v], whole[(r * length + p) * vocab + v], 1e-10) << "row " << r << ", place " << p;
      }
    }
  }
  EXPECT_EQ(tried, static_cast<int>(names.size()));
}

TEST(ModelDecode, AgreesOverLongTextsInFloat) {
  ModelConfig config = small_config();
  config.norm = Norm::pre;
  config.position = Position::rope;
  config.output_proj = OutputProj::features;
  config.d_model = 64;
  config.heads = 4;
  config.d_ffn = 96;
  config.seq_len = 200;
  std::shared_ptr<Context> ctx = make_context("cpu", "fp32");
  Model model(ctx, config, false);
  std::vector<std::int32_t> row;
  for (int p = 0; p < 180; ++p) row.push_back(3 + (p * p + p / 3) % 16);
  const std::vector<double> whole =
      read_vector(model.logits(upload(*ctx, rows_batch({row}, config.seq_len, false)), {}));
  Model::Cache cache = model.make_cache(1, config.seq_len);
  for (std::size_t p = 99; p < row.size(); ++p) {
    ctx->arena->reset();
    std::vector<std::int32_t> tokens, positions;
    for (std::size_t q = p == 99 ? 0 : p; q <= p; ++q) {
      tokens.push_back(row[q]);
      positions.push_back(static_cast<std::int32_t>(q));
    }
    const std::vector<double> last =
        read_vector(model.decode(cache, tokens, std::vector<std::int32_t>(tokens.size(), 0), positions,
                                 {static_cast<std::int32_t>(tokens.size()) - 1}, {}));
    for (int v = 0; v < config.vocab; ++v) {
      ASSERT_NEAR(last[static_cast<std::size_t>(v)],
                  whole[p * static_cast<std::size_t>(config.vocab) + static_cast<std::size_t>(v)], 1e-4)
          << p;
    }
  }
}

// A parameter is declared once: store, counts and layers agree with the declarations.
TEST(ModelParameters, AreDeclaredOnce) {
  std::vector<Variant> variants = model_variants;
  variants.push_back({"lora", [](ModelConfig& c) { c.training = ExpertTraining::lora, c.lora_rank = 3; }});
  variants.push_back({"lora_features", [](ModelConfig& c) {
                        c.training = ExpertTraining::lora, c.lora_rank = 3, c.output_proj = OutputProj::features;
                      }});
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.name);
    ModelConfig config = small_config();
    variant.change(config);
    Model model(make_context("cpu", "fp32"), config, true);
    ParameterStore& store = model.parameters();
    ModelParameters parts(config);
    std::set<std::string> names;
    std::set<const Param*> places;
    std::size_t trained = 0;
    for (const Parameter& one : declare_parameters(parts)) {
      EXPECT_TRUE(names.insert(one.name).second) << one.name;
      EXPECT_EQ(one.bound == nullptr, one.kind == Parameter::Kind::absent) << one.name;
      if (one.bound != nullptr) {
        EXPECT_TRUE(places.insert(one.bound).second) << one.name;
      }
      if (!one.trained()) continue;
      ASSERT_LT(trained, store.entries().size());
      EXPECT_EQ(store.entries()[trained].name, one.name);
      EXPECT_EQ(store.entries()[trained].shape, one.shape);
      ++trained;
    }
    EXPECT_EQ(trained, store.entries().size());
    EXPECT_EQ(store.parameters(), count_parameters(config).trainable);
  }
}

// Groups of gradients that are complete together, as sent to other ranks: agree with the names in checkpoints.
TEST(ModelParameters, KnowTheirLayer) {
  for (const Variant& variant : model_variants) {
    SCOPED_TRACE(variant.name);
    ModelConfig config = small_config();
    variant.change(config);
    Model model(make_context("cpu", "fp32"), config, true);
    for (const auto& entry : model.parameters().entries()) {
      int layer = -1;
      if (entry.name.starts_with("layers.")) layer = std::stoi(entry.name.substr(7));
      if (entry.name.starts_with("head.")) layer = config.layers;
      EXPECT_EQ(entry.layer, layer) << entry.name;
      EXPECT_EQ(entry.row_sums, entry.shape.rank() < 2 || entry.name.ends_with(".conv.weight")) << entry.name;
    }
  }
}

// The second matrix of a feed-forward block may be initialized to zero and still learns.
TEST(ModelParameters, ReadoutsThatBeginSilent) {
  const std::vector<std::pair<const char*, Variant>> silent = {
      {"ffn.1.weight", {"dense", [](ModelConfig& c) { c.ffn = Ffn::dense, c.dense_init = OutputInit::zero; }}},
      {"output_proj.weight",
       {"linear", [](ModelConfig& c) { c.output_proj = OutputProj::linear, c.output_proj_init = OutputInit::zero; }}},
      {"output_proj.weight", {"features", [](ModelConfig& c) {
                                c.output_proj = OutputProj::features, c.output_proj_init = OutputInit::zero;
                              }}}};
  for (const auto& [name, variant] : silent) {
    SCOPED_TRACE(variant.name);
    ModelConfig config = small_config();
    variant.change(config);
    Model model(make_context("cpu", "f64"), config, true);
    const auto largest = [&](const Tensor& tensor) {
      double most = 0;
      for (std::int64_t i = 0; i < tensor.elements(); ++i) most = std::max(most, std::abs(tensor.data<double>()[i]));
      return most;
    };
    const Param matrix = model.parameters().param(std::string("layers.1.") + name);
    EXPECT_EQ(largest(matrix.value), 0);
    const Batch batch = rows_batch(sample_rows, config.seq_len, false);
    Schedule schedule(model.context());
    model.clear_gradients(model.context());
    model.train_pass(schedule, upload(model.context(), batch), {});
    EXPECT_GT(largest(matrix.grad), 0);
  }
}

// The model reads a parameter where it is bound: changing it changes the loss.
TEST(ModelParameters, AreReadWhereTheyAreBound) {
  for (const Variant& variant : model_variants) {
    SCOPED_TRACE(variant.name);
    ModelConfig config = small_config();
    variant.change(config);
    Model model(make_context("cpu", "f64"), config, true);
    const Batch batch = rows_batch(sample_rows, config.seq_len, false);
    const double before = loss_of(model, batch);
    for (const auto& entry : model.parameters().entries()) {
      // Non-uniform changes: a bias common to all attention keys changes no weight, and the next norm removes what is
      // common to all outputs of a layer.
      Tensor values = model.parameters().view(model.parameters().value, entry);
      const Tensor kept = values.clone();
      for (std::int64_t i = 0; i < values.elements(); ++i)
        values.data<double>()[i] += 0.1 * static_cast<double>(1 + i * i % 7);
      EXPECT_NE(loss_of(model, batch), before) << entry.name;
      values.copy_from(kept);
    }
  }
}

TEST(ModelFrozen, LayersKeepTheirKeysToTheBit) {
  ModelConfig config = small_config();
  config.keys.frozen_layers = {1};
  std::shared_ptr<Context> ctx = make_context("cpu", "fp32");
  Model fresh(ctx, config, false);
  const StepOutcome after = one_step(config, rows_batch(sample_rows, config.seq_len, false), "fp32");
  const std::vector<double> first = read_vector(fresh.layers()[0].keys.keys),
                            second = read_vector(fresh.layers()[1].keys.keys);
  EXPECT_NE(std::vector<double>(after.keys.begin(), after.keys.begin() + static_cast<std::ptrdiff_t>(first.size())),
            first);
  EXPECT_EQ(std::vector<double>(after.keys.begin() + static_cast<std::ptrdiff_t>(first.size()), after.keys.end()),
            second);
}

TEST(ModelOperations, CountIsThatOfTheFormula) {
  // A4, calculated by hand: 12 d^2 of projections, 2*(2*2d*d) of router, 2*k*2*d*f of experts, head, scores, attention
  // over causal pairs.
  ModelConfig c;
  const double d = 512, f = 1024, k = 4, e = 64, v = 8192, layers = 10, tokens = 100, pairs = 5050;
  const OperationCount count = count_operations(c, tokens, pairs);
  const double forward =
      layers * (tokens * (8 * d * d + 8 * d * d + 2 * e * d + 4 * k * d * f) + 4 * d * pairs) + tokens * 2 * d * v;
  EXPECT_NEAR(count.forward, forward, 1e-6 * forward);
  EXPECT_NEAR(count.experts, 2 * layers * tokens * 4 * k * d * f, 1);
  // Queries of 64 numbers reduce the router's second layer and the scores; an input projection is a GEMM of d by d.
  c.query_dim = 64;
  c.input_proj = true;
  const double narrow = forward + layers * tokens * (2 * d * d - 2 * 2 * d * (d - 64) - 2 * e * (d - 64));
  EXPECT_NEAR(count_operations(c, tokens, pairs).forward, narrow, 1e-6 * narrow);
}

}  // namespace
}  // namespace some
