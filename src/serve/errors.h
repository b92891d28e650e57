// Errors in the format of OpenAI's clients: {"error": {"message", "type", "param", "code"}} with an HTTP status.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/error.h"
#include "http/http.h"

namespace some {

int status_of(const Error& error);
nlohmann::json error_object(const Error& error);
Response error_response(const Error& error);
// The same for errors of the HTTP server.
Response refused_response(int status, const std::string& words);
// Serializes JSON; replaces invalid UTF-8 in strings.
std::string dumped(const nlohmann::json& value);

}  // namespace some
