// Requests as JSON: valid ones are accepted, and every kind of invalid one is rejected with the name of its field.
#include "serve/api.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "serve/api_keys.h"
#include "serve/errors.h"
#include "serve/metrics.h"
#include "temporary_folder.h"

namespace some {
namespace {

using Json = nlohmann::json;

const ApiLimits limits;

Json with(Json base, const Json& changes) {
  base.update(changes);
  return base;
}
GenerationRequest completion(const Json& changes = Json::object()) {
  return parse_completion(with({{"model", "m"}, {"prompt", "Once"}}, changes).dump(), limits);
}
GenerationRequest chat(const Json& changes = Json::object(), ChatTemplate how = ChatTemplate::plain) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "Once"}}});
  return parse_chat(with({{"model", "m"}, {"messages", messages}}, changes).dump(), limits, how);
}
std::string text_of(const GenerationRequest& request) { return std::get<std::string>(request.prompts.at(0)); }

TEST(Api, DefaultsAreThoseOfOpenAI) {
  const GenerationRequest one = completion();
  EXPECT_EQ(one.model, "m");
  EXPECT_EQ(text_of(one), "Once");
  EXPECT_EQ(one.max_tokens, 16);
  EXPECT_EQ(one.sampling.temperature, 1);
  EXPECT_EQ(one.sampling.top_p, 1);
  EXPECT_EQ(one.n, 1);
  EXPECT_FALSE(one.stream || one.echo || one.seeded || one.logprobs || one.some.experts || one.some.learn);
  EXPECT_EQ(chat().max_tokens, 256);
  EXPECT_TRUE(chat().chat);
  // null counts as missing.
  EXPECT_EQ(
      completion({{"max_tokens", nullptr}, {"stop", nullptr}, {"logprobs", nullptr}, {"seed", nullptr}}).max_tokens,
      16);
}

TEST(Api, EveryFieldIsRead) {
  const GenerationRequest one = completion({{"max_tokens", 7},
                                            {"temperature", 0.5},
                                            {"top_p", 0.25},
                                            {"top_k", 3},
                                            {"min_p", 0.125},
                                            {"presence_penalty", -1},
                                            {"frequency_penalty", 2},
                                            {"repetition_penalty", 1.5},
                                            {"seed", -1},
                                            {"n", 4},
                                            {"best_of", 4},
                                            {"echo", true},
                                            {"logprobs", 5},
                                            {"stop", {"a", "bc"}},
                                            {"stream", true},
                                            {"stream_options", {{"include_usage", true}}},
                                            {"logit_bias", {{"5", -100}, {"6", 1.5}}},
                                            {"user", "somebody"},
                                            {"some", {{"experts", true}}}});
  EXPECT_EQ(one.max_tokens, 7);
  EXPECT_EQ(one.sampling.temperature, 0.5);
  EXPECT_EQ(one.sampling.top_p, 0.25);
  EXPECT_EQ(one.sampling.top_k, 3);
  EXPECT_EQ(one.sampling.min_p, 0.125);
  EXPECT_EQ(one.sampling.presence_penalty, -1);
  EXPECT_EQ(one.sampling.frequency_penalty, 2);
  EXPECT_EQ(one.sampling.repetition_penalty, 1.5);
  EXPECT_TRUE(one.seeded);
  EXPECT_EQ(one.sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(one.n, 4);
  EXPECT_TRUE(one.echo && one.stream && one.include_usage && one.some.experts);
  EXPECT_EQ(one.logprobs, 5);
  EXPECT_EQ(one.stop, (std::vector<std::string>{"a", "bc"}));
  ASSERT_EQ(one.sampling.logit_bias.size(), 2U);
  EXPECT_TRUE(std::isinf(one.sampling.logit_bias[0].second));
  const Extensions some = completion({{"some", {{"sources", true}, {"session", "s-1"}}}}).some;
  EXPECT_EQ(some.session, "s-1");
  EXPECT_FALSE(some.memory) << "the session's memory is meant";
}

TEST(Api, PromptsAreTextsOrTokens) {
  EXPECT_EQ(completion({{"prompt", {"a", "b"}}}).prompts.size(), 2U);
  EXPECT_EQ(std::get<std::vector<TokenId>>(completion({{"prompt", {1, 2, 3}}}).prompts.at(0)),
            (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(completion({{"prompt", {{1, 2}, {3}}}}).prompts.size(), 2U);
  EXPECT_EQ(parse_embedding(R"({"input":[[1],[2,3]],"encoding_format":"base64","dimensions":4})", limits).inputs.size(),
            2U);
  for (const Json& wrong :
       {Json(), Json(3), Json(true), Json(""), Json::array(), Json::object(), Json{"a", 1}, Json{1, "a"}, Json{1.5},
        Json{-1}, Json{4294967296}, Json{Json::array()}, Json{{"a", ""}}, Json{Json::array({"a"})},
        Json::array({nullptr}), Json::array({Json::array({Json::array({1})})})}) {
    EXPECT_ERROR(completion({{"prompt", wrong}}), Code::request_invalid, "prompt") << wrong;
    EXPECT_ERROR(parse_embedding(Json{{"input", wrong}}.dump(), limits), Code::request_invalid, "input") << wrong;
  }
  const ApiLimits small{.prompt_tokens = 3, .choices = 2};
  EXPECT_ERROR(parse_completion(R"({"prompt":[1,2,3,4]})", small), Code::request_invalid, "prompt");
  EXPECT_ERROR(parse_completion(R"({"prompt":["a","b","c"]})", small), Code::request_invalid, "prompt");
  EXPECT_ERROR(parse_completion(R"({"prompt":["a","b"],"n":2})", small), Code::request_invalid, "n");
}

TEST(Api, NonsenseIsRefusedWithItsField) {
  const std::vector<std::pair<const char*, std::vector<Json>>> wrong = {
      {"model", {1, Json::array(), std::string(300, 'x')}},
      {"max_tokens", {0, -1, 1.5, "7", 4097, 1000000, 1e300, 9007199254740993, 18446744073709551615ULL, true}},
      {"temperature", {-0.1, 2.1, "1", Json::array()}},
      {"top_p", {-0.1, 1.1, "1"}},
      {"top_k", {-1, 0.5}},
      {"min_p", {-1, 2}},
      {"presence_penalty", {-2.1, 2.1}},
      {"frequency_penalty", {-2.1, "x"}},
      {"repetition_penalty", {0, -1, 1e9}},
      {"seed", {1.5, "1", 18446744073709551615ULL}},
      {"n", {0, -1, 129, 2.5, "2"}},
      {"best_of", {2, 0}},
      {"echo", {1, "true"}},
      {"logprobs", {-1, 21, 1.5, true}},
      {"stop",
       {"", 1, Json::array({1}), Json::array({""}), Json(std::vector<std::string>(17, "x")), std::string(2000, 'x')}},
      {"stream", {1, "true"}},
      {"stream_options", {Json{{"include_usage", true}}, 1}},
      {"suffix", {"end"}},
      {"logit_bias",
       {1, Json{{"x", 1}}, Json{{"1", 101}}, Json{{"1", "x"}}, Json{{"-1", 1}}, Json{{"99999999999", 1}}}},
      {"learn", {1, true}},
      {"some", {1, Json::array()}},
      {"unknown", {1}},
      {"", {1}},
  };
  for (const auto& [field, values] : wrong) {
    for (const Json& value : values) EXPECT_ERROR(completion({{field, value}}), Code::request_invalid, field) << value;
  }
  EXPECT_ERROR(completion({{"some", {{"expert", true}}}}), Code::request_invalid, "some.expert");
  EXPECT_ERROR(completion({{"some", {{"experts", 1}}}}), Code::request_invalid, "some.experts");
  for (const char* name : {"../x", "a/b", ".hidden", "a b", "\n"})
    EXPECT_ERROR(completion({{"some", {{"session", name}}}}), Code::request_invalid, "some.session") << name;
  EXPECT_ERROR(completion({{"some", {{"session", "a"}, {"memory", true}}}}), Code::request_invalid, "some.memory");
  EXPECT_ERROR(completion({{"max_tokens", 4096}, {"n", 100}, {"logprobs", 20}}), Code::request_invalid, "max_tokens");
  for (const char* body : {"", "x", "[]", "1", "null", "\"{}\"", "{", "{\"prompt\":\"\xff\"}",
                           "{\"prompt\":\"\\ud800\"}", "{\"prompt\":\"a\",\"temperature\":1e999}"}) {
    EXPECT_TRUE(error_in([&] { parse_completion(body, limits); })) << body;
    EXPECT_TRUE(error_in([&] { parse_chat(body, limits, ChatTemplate::plain); })) << body;
    EXPECT_TRUE(error_in([&] { parse_embedding(body, limits); })) << body;
  }
  EXPECT_TRUE(error_in([&] { parse_completion(std::string(100000, '['), limits); }));
}

TEST(Api, NothingIsWrittenOnlyWithEcho) {
  EXPECT_EQ(completion({{"max_tokens", 0}, {"echo", true}, {"logprobs", 1}}).max_tokens, 0);
  EXPECT_ERROR(completion({{"max_tokens", 0}}), Code::request_invalid, "max_tokens");
  EXPECT_ERROR(completion({{"echo", true}, {"logprobs", 1}, {"some", {{"session", "a"}}}}), Code::request_invalid,
               "logprobs");
}

TEST(Api, SessionsAreNamedByTheRequestOrItsUser) {
  EXPECT_EQ(completion({{"learn", true}, {"user", "ann"}}).some.session, "ann");
  EXPECT_EQ(completion({{"some", {{"learn", true}}}, {"user", "ann"}}).some.session, "ann");
  EXPECT_EQ(completion({{"some", {{"learn", true}, {"session", "s"}}}, {"user", "ann"}}).some.session, "s");
  EXPECT_EQ(completion({{"user", "ann"}}).some.session, "") << "without learning, user has no effect";
  EXPECT_TRUE(completion({{"some", {{"sources", true}}}}).some.memory) << "of the run";
}

TEST(Api, MessagesBecomeOneText) {
  const Json messages = Json::array(
      {{{"role", "system"}, {"content", "A story."}},
       {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Once "}}, {{"type", "text"}, {"text", "upon"}}}}},
       {{"role", "assistant"}, {"content", " a time."}},
       {{"role", "user"}, {"content", "The fox"}}});
  const GenerationRequest plain = chat({{"messages", messages}});
  EXPECT_EQ(text_of(plain), "A story.\nOnce upon a time.\nThe fox");
  EXPECT_EQ(plain.learned_text, "The fox");
  EXPECT_TRUE(plain.stop.empty());
  const GenerationRequest dialogue = chat({{"messages", messages}}, ChatTemplate::dialogue);
  EXPECT_EQ(text_of(dialogue), "A story.\nUser: Once upon\nAssistant:  a time.\nUser: The fox\nAssistant:");
  EXPECT_EQ(dialogue.stop, std::vector<std::string>{"\nUser:"});
  EXPECT_EQ(chat({{"max_completion_tokens", 5}}).max_tokens, 5);
  EXPECT_EQ(chat({{"logprobs", true}, {"top_logprobs", 2}}).logprobs, 2);
  EXPECT_FALSE(chat({{"logprobs", false}}).logprobs);
  chat({{"tools", Json::array()}, {"tool_choice", "auto"}, {"response_format", {{"type", "text"}}}, {"store", false}});
  const std::vector<std::pair<std::string, Json>> wrong = {
      {"messages", Json::array()},
      {"messages", "hello"},
      {"messages[0]", Json::array({1})},
      {"messages[0].role", Json::array({{{"role", "robot"}, {"content", "x"}}})},
      {"messages[0].role", Json::array({{{"content", "x"}}})},
      {"messages[0].content", Json::array({{{"role", "user"}, {"content", 1}}})},
      {"messages[0].content", Json::array({{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}})},
      {"messages", Json::array({{{"role", "user"}, {"content", ""}}})}};
  for (const auto& [field, value] : wrong)
    EXPECT_ERROR(chat({{"messages", value}}), Code::request_invalid, field) << value;
  EXPECT_ERROR(chat({{"tools", {{{"type", "function"}}}}}), Code::request_invalid, "tools");
  EXPECT_ERROR(chat({{"response_format", {{"type", "json_object"}}}}), Code::request_invalid, "response_format");
  EXPECT_ERROR(chat({{"top_logprobs", 2}}), Code::request_invalid, "top_logprobs");
  EXPECT_ERROR(chat({{"prompt", "x"}}), Code::request_invalid, "prompt");
}

TEST(ApiKeys, OnlyAWholeKeyOpens) {
  TemporaryFolder folder;
  const std::string file = folder.write("keys", "# of the team\n0123456789abcdef-a\r\n\n  0123456789abcdef-b  \n");
  std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const ApiKeys keys = ApiKeys::from_file(file);
  EXPECT_EQ(keys.size(), 2U);
  EXPECT_EQ(keys.holder("Bearer 0123456789abcdef-a"), 0U);
  EXPECT_EQ(keys.holder("bearer  0123456789abcdef-b"), 1U);
  for (const char* wrong :
       {"", "Bearer", "Bearer ", "Bearer 0123456789abcdef-", "Bearer 0123456789abcdef-ab", "0123456789abcdef-a",
        "Basic 0123456789abcdef-a", "Bearer 0123456789abcdef-a 0123456789abcdef-b", "Bearer 0123456789ABCDEF-a"})
    EXPECT_FALSE(keys.holder(wrong)) << wrong;
  EXPECT_EQ(ApiKeys().holder(""), 0U) << "none are required";
  EXPECT_EQ(ApiKeys::from_text("0123456789abcdef,fedcba9876543210", "X").size(), 2U);
  EXPECT_ERROR(ApiKeys::from_text("short", "X"), Code::api_key_invalid, "1");
  EXPECT_ERROR(ApiKeys::from_text("# nothing", "X"), Code::api_key_invalid, "X");
  EXPECT_ERROR(ApiKeys::from_text("0123456789 abcdef", "X"), Code::api_key_invalid, "1");
  EXPECT_ERROR(ApiKeys::from_file(folder / "none"), Code::file_not_found);
  std::filesystem::permissions(file, std::filesystem::perms::others_read, std::filesystem::perm_options::add);
  EXPECT_ERROR(ApiKeys::from_file(file), Code::api_key_invalid, file);
}

TEST(ApiErrors, AreThoseThatClientsKnow) {
  const auto object = error_object(*error_in([] { completion({{"n", 0}}); }));
  EXPECT_EQ(object["type"], "invalid_request_error");
  EXPECT_EQ(object["param"], "n");
  EXPECT_EQ(object["code"], "request-invalid");
  EXPECT_EQ(status_of(make_error(Fault::failure, Code::server_busy, "x")), 503);
  EXPECT_EQ(status_of(make_error(Fault::input, Code::server_busy, "x")), 429);
  EXPECT_EQ(status_of(make_error(Fault::input, Code::run_not_found, "x")), 404);
  EXPECT_EQ(status_of(make_error(Fault::failure, Code::gpu_failed, "x")), 500);
  EXPECT_EQ(error_response(make_error(Fault::failure, Code::server_busy, "x")).retry_after, 1);
}

TEST(ApiMetrics, ArePrometheusText) {
  Histogram histogram({1, 2});
  for (const double value : {0.5, 1.0, 1.5, 5.0}) histogram.add(value);
  std::string out;
  histogram.write(out, "h", label("model", "a\"b\\\n"));
  EXPECT_EQ(out,
            "h_bucket{model=\"a\\\"b\\\\\\n\",le=\"1\"} 2\nh_bucket{model=\"a\\\"b\\\\\\n\",le=\"2\"} 3\n"
            "h_bucket{model=\"a\\\"b\\\\\\n\",le=\"+Inf\"} 4\nh_sum{model=\"a\\\"b\\\\\\n\"} "
            "8\nh_count{model=\"a\\\"b\\\\\\n\"} 4\n");
}

}  // namespace
}  // namespace some
