// A minimal HTTP client: requests are sent byte for byte, and responses are returned unparsed.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace some {

class Client {
 public:
  explicit Client(int port, int receive_bytes = 0, const char* source = nullptr) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_bytes > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    if (source != nullptr) {  // an address of this machine, such as 127.0.0.2
      sockaddr_in from{};
      from.sin_family = AF_INET;
      ::inet_pton(AF_INET, source, &from.sin_addr);
      ::bind(socket_, reinterpret_cast<sockaddr*>(&from), sizeof from);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  const std::string& all() const { return text_; }
  bool ended() const { return ended_; }

  void send(const std::string& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t now = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (now <= 0) return;
      sent += static_cast<std::size_t>(now);
    }
  }

  // Reads until `enough` returns true, the peer closes, or the timeout expires; returns false in the last case.
  template <typename Enough>
  bool read_enough(const Enough& enough, std::chrono::milliseconds most = std::chrono::milliseconds(30000)) {
    const auto end = std::chrono::steady_clock::now() + most;
    while (!enough(text_)) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      if (left.count() <= 0) return false;
      pollfd one{socket_, POLLIN, 0};
      if (::poll(&one, 1, static_cast<int>(left.count())) <= 0) continue;
      char bytes[65536];
      const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
      if (got <= 0) {
        ended_ = true;
        return true;
      }
      text_.append(bytes, static_cast<std::size_t>(got));
    }
    return true;
  }
  bool read_until(const std::string& words, std::chrono::milliseconds most = std::chrono::milliseconds(30000)) {
    return read_enough([&](const std::string& text) { return text.find(words) != std::string::npos; }, most) &&
           text_.find(words) != std::string::npos;
  }
  // Returns one complete response and removes it from the buffer.
  struct Answer {
    int status = 0;
    std::string head, body;
  };
  Answer answer(bool head_only = false) {
    Answer out;
    read_until("\r\n\r\n");
    const std::size_t end = text_.find("\r\n\r\n");
    if (end == std::string::npos) return out;
    out.head = text_.substr(0, end);
    out.status = std::stoi(out.head.substr(9, 3));
    std::size_t length = 0;
    if (const std::size_t at = out.head.find("Content-Length: "); at != std::string::npos)
      length = std::stoul(out.head.substr(at + 16));
    if (head_only || out.status == 304) length = 0;
    read_enough([&](const std::string& text) { return text.size() >= end + 4 + length; });
    out.body = text_.substr(end + 4, length);
    text_.erase(0, end + 4 + length);
    return out;
  }
  Answer get(const std::string& target, const std::string& more = "") {
    send(fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n{}\r\n", target, more));
    return answer();
  }

 private:
  int socket_ = -1;
  bool connected_ = false, ended_ = false;
  std::string text_;
};

inline Client::Answer get_once(int port, const std::string& target, const std::string& more = "") {
  return Client(port).get(target, more);
}

}  // namespace some
