#include "study/fixture.h"

#include <charconv>
#include <cmath>

#include "model/operations.h"

namespace some::study {
namespace {

constexpr double any_number = std::numeric_limits<double>::max();
const std::vector<std::string> anneal_shapes = {"none", "linear", "cosine", "exponential"};  // as in AnnealShape

JsonObject config_of(const SafetensorsFile& file) {
  const auto found = file.metadata().find("config");
  if (!file.metadata().contains("kind") || found == file.metadata().end())
    bad_input("{} is not a fixture: its header needs `kind` and `config`", file.path());
  const std::string origin = file.path() + ": `config` in its header";
  return {parse_json(found->second, origin), origin};
}

// The place of a text among the names of an enum's values.
template <typename Enum>
Enum choice(const JsonObject& config, const std::string& key, const std::string& fallback,
            const std::vector<std::string>& names) {
  const auto value = config.get<std::string>(key, fallback);
  const auto found = std::find(names.begin(), names.end(), value);
  if (found == names.end()) config.wrong(key, fmt::format("one of {}", fmt::join(names, ", ")));
  return static_cast<Enum>(found - names.begin());
}

}  // namespace

Fixture::Fixture(const std::string& path) : file_(SafetensorsFile::open(path)), config_(config_of(file_)) {
  kind_ = file_.metadata().at("kind");
}

ModelConfig Fixture::model_config() const {
  const JsonObject& from = config_;
  const auto size = [&](const char* key, int fallback) { return from.get<int>(key, fallback, 1, 1 << 20); };
  const auto number = [&](const char* key, double fallback) {
    return from.get<double>(key, fallback, -any_number, any_number);
  };
  const auto positive = [&](const char* key, double fallback) { return from.get<double>(key, fallback, 0.0, 1e6); };
  ModelConfig c;
  c.seed = from.get<std::uint64_t>("seed", 0);
  c.library_seed = from.get<std::uint64_t>("library_seed", 0);
  c.vocab = size("vocab", 8);
  c.d_model = size("d_model", 8);
  c.layers = size("layers", 1);
  c.heads = size("heads", 1);
  c.seq_len = size("seq_len", 8);
  c.experts = size("experts", 1);
  c.d_ffn = size("d_ffn", 8);
  c.top_k = size("top_k", 1);
  c.causal = from.get<bool>("causal", true);
  c.norm = choice<Norm>(from, "norm", "post", {"post", "pre"});
  c.position = choice<Position>(from, "position", "sinusoidal", {"sinusoidal", "rope"});
  c.ffn = choice<Ffn>(from, "ffn", "some", {"some", "dense", "none"});
  c.router = choice<Router>(from, "router", "mlp", {"linear", "mlp"});
  c.readout = choice<Readout>(from, "readout", "none", {"none", "linear", "features"});
  c.routing = choice<RoutingKind>(from, "routing", "keys", {"keys", "random"});
  c.training = choice<ExpertTraining>(from, "training", "frozen", {"frozen", "lora", "full"});
  c.lora_rank = from.get<int>("lora_rank", c.lora_rank, 1, 4096);
  c.query_dim = from.get<int>("query_dim", 0, 0, 1 << 20);
  c.readin = from.get<bool>("readin", false);
  c.router_mult = from.get<double>("router_mult", 2.0, 0.0, 64.0);
  c.dense_mult = from.get<double>("dense_mult", 4.0, 0.0, 1024.0);
  c.ground = number("ground", 0.0);
  // Either the temperature itself, or how it comes about.
  const bool named = from.has("temperature") && from.json().at("temperature").is_string();
  if (named) c.temperature = choice<Temperature>(from, "temperature", "fixed", {"fixed", "learned"});
  c.train_temp = c.eval_temp = positive(named ? "train_temp" : "temperature", 1.0);
  KeySettings& k = c.keys;
  k.alpha = number("alpha", k.alpha);
  k.beta = number("beta", k.beta) * number("beta_scale", 1.0);
  k.delta = number("delta", k.delta);
  k.use_alpha = from.get<bool>("use_alpha", true);
  k.use_beta = from.get<bool>("use_beta", true);
  k.use_delta = from.get<bool>("use_delta", true);
  k.alpha_floor = number("alpha_floor", 0.0);
  k.clip_delta = number("clip_delta", 0.0);
  k.theta_percentile = from.get<double>("theta_percentile", k.theta_percentile, 0.0, 1.0);
  k.theta = number("theta", -1.0);
  k.decay_warmup = from.get<std::int64_t>("decay_warmup", k.decay_warmup);
  k.ema_decay = from.get<double>("ema_decay", k.ema_decay, 0.0, 1.0);
  k.key_ema = from.get<double>("key_ema", 0.0, 0.0, 1.0);
  k.usage = choice<Usage>(from, "usage", "ema", {"ema", "cumulative", "flux"});
  k.constraint = choice<Constraint>(from, from.has("constraint") ? "constraint" : "key_constraint", "normalize",
                                    {"normalize", "normalize_used", "clamp", "free"});
  k.constraint_order = choice<ConstraintOrder>(from, "constraint_order", "before_decay", {"before_decay", "last"});
  k.beta_inertia = choice<BetaInertia>(from, "beta_inertia", "min", {"min", "max"});
  k.frozen_layers = from.get<std::vector<int>>("frozen_layers", {});
  k.beta_layer_scale = from.get<std::vector<double>>("beta_layer_scale", {});
  k.update_every = from.get<std::int64_t>("update_every", k.update_every, 1, 1 << 20);
  k.update_fraction = from.get<double>("update_fraction", k.update_fraction, 0.0, 1.0);
  k.respawn_threshold = positive("respawn_threshold", k.respawn_threshold);
  if (from.has("beta_anneal")) {
    const JsonObject anneal = from.object("beta_anneal");
    k.beta_anneal = {choice<AnnealShape>(anneal, "shape", "none", anneal_shapes),
                     anneal.get<double>("start", 1.0, -any_number, any_number),
                     anneal.get<double>("end", 1.0, -any_number, any_number)};
  }
  c.topk_warmup = from.get<double>("topk_warmup", 0.0, 0.0, 1.0);
  c.balance_loss = number("balance_loss", 0.0);
  if (const auto band = from.get<std::vector<double>>("entropy_band", {}); !band.empty()) {
    if (band.size() != 2) from.wrong("entropy_band", "2 numbers");
    c.entropy_low = band[0];
    c.entropy_high = band[1];
    c.entropy_coefficient = number("entropy_coefficient", c.entropy_coefficient);
  }
  if (c.top_k > c.experts) from.wrong("top_k", fmt::format("at most `experts` = {}", c.experts));
  return c;
}

ModelConfig Fixture::checked_model_config() const {
  ModelConfig config = model_config();
  try {
    check_config(config);
  } catch (const Error& error) {
    bad_input("{}: {}", config_.origin(), error.what());
  }
  return config;
}

void Fixture::check_proportion(const ModelConfig& config, std::int64_t rows) const {
  double stored = 0;
  for (const std::string& name : file_.names()) stored += static_cast<double>(file_.shape(name).elements());
  // In double precision everything is twice as large as estimated; a case with its gradients and moments is some ten
  // times its parameters.
  const double needed = 2 * estimate_memory(config, static_cast<double>(rows), false, true).total();
  constexpr double small = 256.0 * (1 << 20), factor = 64, bytes = 8;
  if (needed > small + factor * bytes * stored)
    bad_input(
        "{}: a case of these sizes takes {:.1f} GiB, while the file holds {:.1f} MiB of numbers; one of the sizes "
        "is wrong",
        config_.origin(), needed / (1 << 30), bytes * stored / (1 << 20));
}

Shape Fixture::shape(const std::string& name, int rank) const {
  const Shape found = file_.shape(name);
  if (found.rank() != rank || found.elements() == 0)
    bad_input("{}: {} has shape {}; wants {} axes, each of at least 1", path(), name, found.text(), rank);
  return found;
}

Tensor Fixture::load(const std::string& name, const Shape& shape) const {
  if (const Shape found = file_.shape(name); found != shape)
    bad_input("{}: {} has shape {} where its config calls for {}", path(), name, found.text(), shape.text());
  return file_.load(name);
}

Tensor Fixture::numbers(const std::string& name, const Shape& shape) const { return load(name, shape); }

Tensor Fixture::ids(const std::string& name, const Shape& shape, std::int64_t low, std::int64_t high) const {
  const Tensor stored = load(name, shape);
  if (stored.dtype() != DType::i64 && stored.dtype() != DType::i32)
    bad_input("{}: {} has elements of type {}; wants I64 or I32", path(), name, name_of(stored.dtype()));
  const Tensor wide = stored.dtype() == DType::i64 ? stored : stored.to(DType::i64);
  for (std::int64_t i = 0; i < wide.elements(); ++i) {
    if (const std::int64_t id = wide.data<std::int64_t>()[i]; id < low || id > high)
      bad_input("{}: {} holds {}; wants whole numbers from {} to {}", path(), name, id, low, high);
  }
  return stored.dtype() == DType::i32 ? stored : stored.to(DType::i32);
}

std::vector<double> Fixture::expected(const std::string& name, std::size_t size) const {
  const std::string full = "expect." + name;
  const Shape found = file_.shape(full);
  if (static_cast<std::size_t>(found.elements()) != size)
    bad_input("{}: {} has shape {} where {} numbers come out", path(), full, found.text(), size);
  return read_vector(file_.load(full));
}

std::optional<double> Fixture::expected_measure(const std::string& name) const {
  const auto found = file_.metadata().find(name);
  if (found == file_.metadata().end()) return std::nullopt;
  const std::string& text = found->second;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    bad_input("{}: `{}` in its header: wants a number, not {}", path(), name, describe(nlohmann::json(text)));
  return value;
}

}  // namespace some::study
