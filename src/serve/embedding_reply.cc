#include "serve/embedding_reply.h"

#include "core/error.h"
#include "serve/errors.h"

namespace some {
namespace {

using Json = nlohmann::json;

std::string base64(const std::vector<float>& numbers) {
  static constexpr char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)), out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = 0; j < 3; ++j)
      three = three << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) out += i + j <= bytes.size() ? letters[three >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

}  // namespace

void EmbeddingReply::finished(std::size_t index, const FinishedSequence& sequence) {
  if (over_) return;
  if (sequence.reason == FinishReason::failed || sequence.reason == FinishReason::cancelled) {
    try {
      if (sequence.error) std::rethrow_exception(sequence.error);
      failed(Code::server_busy, "the server ended the request; try again later");
    } catch (const Error& error) {
      fail(error);
    } catch (const std::exception& error) {
      fail(Error(Fault::failure, Code::internal, error.what()));
    }
    return;
  }
  found_[index] = sequence.embedding;
  if (--left_ > 0) return;
  over_ = true;
  std::int64_t tokens = 0;
  for (const auto& one : inputs_) tokens += std::ssize(one);
  Json data = Json::array();
  for (std::size_t i = 0; i < found_.size(); ++i)
    data.push_back({{"object", "embedding"},
                    {"index", i},
                    {"embedding", request_.base64 ? Json(base64(found_[i])) : Json(found_[i])}});
  Response response;
  response.body = shared_text(dumped({{"object", "list"},
                                      {"data", std::move(data)},
                                      {"model", model_},
                                      {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}}) +
                              "\n");
  answer_.respond(std::move(response));
}

void EmbeddingReply::fail(const Error& error) {
  if (over_) return;
  over_ = true;
  status_ = status_of(error);
  answer_.respond(error_response(error));
}

}  // namespace some
