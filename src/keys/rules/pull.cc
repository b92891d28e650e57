#include "keys/rules/pull.h"

#include "core/error.h"
#include "core/setting.h"
#include "keys/settings.h"

namespace some {

void PullRule::declare(SettingList<Settings>& list) {
  list.number("beta", &Settings::beta, 0, unlimited,
              "Attraction between the keys of experts chosen together (peer pull).");
  list.boolean("use_beta", &Settings::use_beta, "Enables peer pull (beta).");
  list.choice("beta_inertia", &Settings::beta_inertia, {"min", "max"},
              "Usage that slows the peer pull of two experts: the smaller or the larger of the two.");
  list.anneal("beta_anneal", &Settings::beta_anneal,
              "Schedule of a factor on beta over the run, from `start` to `end`; shape \"none\" = constant.");
  list.sequence("beta_layer_scale", SettingKind::layer_scale, &Settings::beta_layer_scale, 0,
                "Factor on beta per layer (study D1); one number holds for all layers, [] = 1.");
}

void PullRule::check(const KeySettings& settings, int layers) {
  settings.beta_anneal.check("some.beta_anneal");
  const std::vector<double>& scale = settings.beta_layer_scale;
  if (!scale.empty() && scale.size() != static_cast<std::size_t>(layers)) {
    bad_input(Code::setting_out_of_range,
              "{} has {} numbers: must be one number for all layers, or a list of model.layers = {}",
              "some.beta_layer_scale", scale.size(), layers);
  }
}

PullRule::Plan PullRule::plan(const Settings& settings, const UpdateTime& time) {
  if (!settings.use_beta) return {};
  const std::vector<double>& scale = settings.beta_layer_scale;
  return {settings.beta * settings.beta_anneal.at(time.progress) *
              (scale.empty() ? 1.0 : scale.at(static_cast<std::size_t>(time.layer))),
          settings.beta_inertia};
}

}  // namespace some
