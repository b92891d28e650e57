#include "serve/errors.h"

#include <nlohmann/json.hpp>

namespace some {
namespace {

nlohmann::json object_of(const std::string& message, const char* type, const std::string& field,
                         std::string_view code) {
  return {{"message", message},
          {"type", type},
          {"param", field.empty() ? nlohmann::json() : nlohmann::json(field)},
          {"code", std::string(code)}};
}

const char* type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

}  // namespace

int status_of(const Error& error) {
  switch (error.code()) {
    case Code::api_key_invalid: return 401;
    case Code::request_unknown:
    case Code::run_not_found: return 404;
    // The limit of a client's key, or of the whole server.
    case Code::server_busy: return error.fault() == Fault::input ? 429 : 503;
    default: return error.fault() == Fault::input ? 400 : 500;
  }
}

nlohmann::json error_object(const Error& error) {
  const int status = status_of(error);
  const std::string field =
      error.code() == Code::request_invalid && !error.values().empty() ? error.values()[0] : std::string();
  // Returns the codes that clients know from OpenAI, otherwise those of docs/errors.md.
  const std::string_view code = error.code() == Code::api_key_invalid ? "invalid_api_key"
                                : error.code() == Code::run_not_found ? "model_not_found"
                                                                      : name_of(error.code());
  return object_of(error.what(), type_of(status), field, code);
}

Response error_response(const Error& error) {
  Response response;
  response.status = status_of(error);
  response.body = shared_text(dumped({{"error", error_object(error)}}) + "\n");
  if (response.status == 503) response.retry_after = 1;
  if (response.status == 401) response.fields.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

Response refused_response(int status, const std::string& words) {
  Response response;
  response.status = status;
  response.body =
      shared_text(dumped({{"error", object_of(words, type_of(status), "",
                                              name_of(status >= 500 ? Code::internal : Code::request_invalid))}}) +
                  "\n");
  return response;
}

std::string dumped(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace some
