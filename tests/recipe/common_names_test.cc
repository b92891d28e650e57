#include "recipe/common_names.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "recipe/recipe.h"
#include "recipe/schema.h"

namespace some {
namespace {

TEST(CommonNames, LeadToTheSetting) {
  for (const auto& [name, setting] : {std::pair{"learning_rate", "train.lr"},
                                      {"--learning-rate", "train.lr"},
                                      {"train.batch_size", "train.batch"},
                                      {"N_LAYER", "model.layers"},
                                      {"grad_clip", "train.clip"},
                                      {"resid_dropout", "model.dropout"},
                                      {"num_experts_per_tok", "some.top_k"}}) {
    EXPECT_EQ(setting_commonly_called(name), setting) << name;
    EXPECT_NE(find_recipe_key(setting), nullptr) << setting;
  }
  for (const char* name : {"", "-", "train.", "no_such_name"}) EXPECT_EQ(setting_commonly_called(name), "") << name;
}

TEST(CommonNames, AppearInTheErrorOfAnUnknownSetting) {
  EXPECT_ERROR(override_recipe(Recipe(), "some.toml", {"train.learning_rate=0.1"}), Code::setting_unknown,
               "train.learning_rate", "train.lr");
}

TEST(CommonNames, WhatIsNotSupportedHasAdvice) {
  for (const char* name : {"attention_dropout", "model.attn_dropout", "--attention-dropout"})
    EXPECT_NE(instead_of_unsupported(name).find("model.dropout"), std::string::npos) << name;
  for (const auto& [name, use] : {std::pair{"optimizer", "train.lr"},
                                  {"train.out_dir", "--out"},
                                  {"init_from", "--from"},
                                  {"moe", "some.*"},
                                  {"--top-p", "some help generate"}})
    EXPECT_NE(instead_of_unsupported(name).find(use), std::string::npos) << name;
  for (const char* name : {"", "lr", "drop", "init", "optimizer moe"})
    EXPECT_EQ(instead_of_unsupported(name), "") << name;
}

}  // namespace
}  // namespace some
