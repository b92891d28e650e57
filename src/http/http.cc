#include "http/http.h"

#include <fmt/format.h>

#include <boost/asio/ip/address.hpp>

namespace some {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool decode_component(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
      if (low < 0) return false;
      out += static_cast<char>(16 * high + low);
      i += 2;
    }
  }
  return true;
}

bool equal_secrets(std::string_view given, std::string_view wanted) {
  unsigned different = given.size() == wanted.size() ? 0 : 1;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    different |= static_cast<unsigned>(static_cast<unsigned char>(wanted[i]) ^
                                       static_cast<unsigned char>(i < given.size() ? given[i] : '\0'));
  return different == 0;
}

std::string Request::value(const std::string& key) const {
  const auto found = query.find(key);
  return found == query.end() ? "" : found->second;
}

Response text_response(int status, const std::string& words) {
  Response response;
  response.status = status;
  response.type = "text/plain; charset=utf-8";
  response.body = shared_text(words + "\n");
  return response;
}

bool is_loopback(const std::string& host) {
  if (host == "localhost" || host == "[::1]" || host == "::1") return true;
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

void Answer::respond(Response response) const { target_->respond(std::move(response)); }
std::shared_ptr<Stream> Answer::stream(const std::string& type) const { return target_->stream(type); }
bool Answer::is_open() const { return target_->is_open(); }

AddressTaken::AddressTaken(const std::string& host, int port)
    : Error(Fault::input, Code::address_taken, fmt::format("port in use: {}:{}; use another --port", host, port),
            {host, std::to_string(port)}) {}

}  // namespace some
