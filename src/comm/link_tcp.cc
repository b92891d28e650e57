// Every two ranks have a connection of their own, on which each knows what comes next, so that bytes need no frame; and
// a rank has one to the next rank for its pulse, as in src/comm/backends/mpi.cc.
#include "comm/link_tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "comm/watchdog.h"
#include "core/error.h"
#include "core/folders.h"
#include "core/system_error.h"

namespace some {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double seconds_to_meet = 300;    // schedulers start processes one after another
constexpr double seconds_to_say_who = 20;  // a rank that has connected may wait for its turn on a busy machine
constexpr double longest_between_beats = 2;
constexpr char beat = 'b', bye = 'y', end = 'e';  // an exit code follows the last

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  explicit operator bool() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

void prepare(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(socket.descriptor(), F_SETFL, fcntl(socket.descriptor(), F_GETFL) | O_NONBLOCK);
  fcntl(socket.descriptor(), F_SETFD, FD_CLOEXEC);
}

// What a send or receive came to; -1: the other end is gone.
ssize_t moved(ssize_t count, bool receiving) {
  if (count > 0) return count;
  if (count == 0) return receiving ? -1 : 0;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

bool wait_for(const Socket& socket, short what, double seconds) {
  pollfd one{socket.descriptor(), what, 0};
  return poll(&one, 1, static_cast<int>(seconds * 1000)) > 0;
}

// All of it, or false. Only while the ranks meet.
bool send_all(const Socket& socket, const std::string& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    if (!wait_for(socket, POLLOUT, seconds_to_meet)) return false;
    const ssize_t count = moved(::send(socket.descriptor(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL), false);
    if (count < 0) return false;
    at += static_cast<std::size_t>(count);
  }
  return true;
}

// Up to a line's end, which is not part of it; at most so many bytes.
std::optional<std::string> receive_line(const Socket& socket, std::size_t most, double seconds) {
  std::string line;
  const auto begin = Clock::now();
  for (char c = 0; line.size() < most;) {
    // What has come is taken, however late: this process may not have been scheduled meanwhile.
    if (!wait_for(socket, POLLIN, std::max(0.0, seconds - seconds_since(begin)))) return std::nullopt;
    const ssize_t count = moved(::recv(socket.descriptor(), &c, 1, 0), true);
    if (count < 0) return std::nullopt;
    if (count == 0) continue;
    if (c == '\n') return line;
    line += c;
  }
  return std::nullopt;
}

struct Address {
  std::string host, port;
};

Address parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  int port = 0;
  if (colon != std::string::npos && colon > 0) {
    const char* const end = text.data() + text.size();
    if (const auto read = std::from_chars(text.data() + colon + 1, end, port); read.ptr != end) port = 0;
  }
  if (port < 1 || port > 65535)
    bad_input(
        "SOME_RANKS_AT is '{}' in the environment; it may be HOST:PORT of rank 0, with a port from 1 to 65535, or a "
        "file's path with a '/'",
        text);
  std::string host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, text.substr(colon + 1)};
}

struct FoundAddresses {
  addrinfo* list = nullptr;
  ~FoundAddresses() {
    if (list != nullptr) freeaddrinfo(list);
  }
};

Socket connect_to(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  FoundAddresses found;
  if (getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found.list) != 0) return Socket();
  for (const addrinfo* one = found.list; one != nullptr; one = one->ai_next) {
    Socket socket(::socket(one->ai_family, one->ai_socktype, one->ai_protocol));
    if (socket && ::connect(socket.descriptor(), one->ai_addr, one->ai_addrlen) == 0) {
      prepare(socket);
      return socket;
    }
  }
  return Socket();
}

Socket listen_at(const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  FoundAddresses found;
  if (getaddrinfo(nullptr, port.c_str(), &hints, &found.list) != 0) failed("there is no port {}", port);
  for (const addrinfo* one = found.list; one != nullptr; one = one->ai_next) {
    Socket socket(::socket(one->ai_family, one->ai_socktype, one->ai_protocol));
    const int on = 1;
    if (socket) setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (socket && ::bind(socket.descriptor(), one->ai_addr, one->ai_addrlen) == 0 &&
        ::token_shift(socket.descriptor(), 1024) == 0) {
      prepare(socket);
      return socket;
    }
  }
  failed("rank 0 cannot listen at port {}: {}", port, last_reason());
}

std::string port_of(const Socket& socket) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  std::array<char, 32> port{};
  getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&own), &length);
  getnameinfo(reinterpret_cast<sockaddr*>(&own), length, nullptr, 0, port.data(), port.size(), NI_NUMERICSERV);
  return port.data();
}

std::string host_at_other_end(const Socket& socket) {
  sockaddr_storage other{};
  socklen_t length = sizeof other;
  std::array<char, 128> host{};
  getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&other), &length);
  getnameinfo(reinterpret_cast<sockaddr*>(&other), length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return host.data();
}

// At once, and for nobody else to read.
void write_for_this_user(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".tmp";
  const int file = ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written = file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (file >= 0) ::close(file);
  if (!written || std::rename(unfinished.c_str(), path.c_str()) != 0)
    failed("rank 0 cannot write its address to {}: {}", path, last_reason());
}

class TcpLink : public Link {
 public:
  TcpLink(int rank, int size, const std::string& at, const LinkOptions& options)
      : options_(options), rank_(rank), size_(size), peers_(static_cast<std::size_t>(size)) {
    meet(at);
    watcher_ = std::thread([this] { watch(); });
  }

  ~TcpLink() override {
    // A rank that has nothing more to do waits for the others, and its pulse goes on. Where one of them is gone,
    // whoever listens to it tells.
    try {
      char word = 0;
      for (int d = 1; d < size_; d *= 2) {
        const Message send{(rank_ + d) % size_, &word, 1}, receive{(rank_ - d + size_) % size_, &word, 1};
        exchange(std::span(&send, 1), std::span(&receive, 1));
      }
    } catch (const Error&) {
    }
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    watcher_.join();
    ::send(next_.descriptor(), &bye, 1, MSG_NOSIGNAL);  // whoever still listens is not to miss this rank
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void exchange(std::span<const Message> sends, std::span<const Message> receives) override {
    struct Task {
      const Message* message;
      bool receives;
      std::size_t done = 0;
    };
    std::vector<Task> tasks;
    for (const Message& one : receives) tasks.push_back({&one, true});
    for (const Message& one : sends) tasks.push_back({&one, false});
    std::vector<pollfd> waited;
    for (;;) {
      waited.clear();
      bool advanced = false;
      // Of several messages one way between two ranks the first is finished first.
      std::vector<std::array<bool, 2>> taken(peers_.size());
      for (Task& task : tasks) {
        const Message& one = *task.message;
        if (task.done == one.bytes || std::exchange(taken[static_cast<std::size_t>(one.peer)][task.receives], true))
          continue;
        const Socket& socket = peers_[static_cast<std::size_t>(one.peer)];
        char* const data = static_cast<char*>(one.data) + task.done;
        const std::size_t left = one.bytes - task.done;
        const ssize_t count = task.receives ? moved(::recv(socket.descriptor(), data, left, 0), true)
                                            : moved(::send(socket.descriptor(), data, left, MSG_NOSIGNAL), false);
        if (count < 0) gone(one.peer);
        advanced = advanced || count > 0;
        task.done += static_cast<std::size_t>(count);
        if (task.done < one.bytes) waited.push_back({socket.descriptor(), short(task.receives ? POLLIN : POLLOUT), 0});
      }
      if (options_.waits != nullptr) options_.waits(options_.whose);
      const bool done =
          std::all_of(tasks.begin(), tasks.end(), [](const Task& task) { return task.done == task.message->bytes; });
      if (done) return;
      if (!advanced) poll(waited.data(), waited.size(), 200);
    }
  }

  [[noreturn]] void abort_all(int code) noexcept override {
    const std::array<char, 2> word{end, static_cast<char>(code)};
    if (::send(next_.descriptor(), word.data(), word.size(), MSG_NOSIGNAL) < 0) std::_Exit(code);
    std::_Exit(code);
  }

 private:
  // The one who listens to its pulse tells, and ends all; until then this rank keeps quiet.
  [[noreturn]] void gone(int peer) {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    failed("the connection to rank {} is lost", peer);
  }

  void meet(const std::string& at) {
    const bool by_file = at.find('/') != std::string::npos;
    const char* const said = std::getenv("SOME_RANKS_SECRET");
    std::string secret = said != nullptr ? said : "none";
    const Socket own = listen_at(rank_ == 0 && !by_file ? parse_address(at).port : "0");
    const auto hello = [&](const char* what) {
      return fmt::format("some {} {} {} {}\n", what, rank_, port_of(own), secret);
    };
    const auto too_late = [&](const std::string& whom) {
      failed("{} did not come within {} seconds: are all {} ranks started, with the same SOME_RANKS_AT ({})?", whom,
             seconds_to_meet, size_, at);
    };
    std::vector<std::string> places(static_cast<std::size_t>(size_));  // HOST PORT of each rank
    const auto begin = Clock::now();
    // One that comes: whoever does not know the secret is sent away.
    struct Visitor {
      std::string what, port;
      int rank = -1;
      Socket socket;
    };
    const auto receive_visitor = [&](const std::string& whom) {
      for (;;) {
        const double left = seconds_to_meet - seconds_since(begin);
        if (left <= 0 || !wait_for(own, POLLIN, left)) too_late(whom);
        Socket socket(::accept(own.descriptor(), nullptr, nullptr));
        if (!socket) continue;
        prepare(socket);
        const auto line = receive_line(socket, 300, seconds_to_say_who);
        std::array<char, 16> what{}, port{};
        std::array<char, 256> word{};
        int rank = -1;
        if (!line ||
            std::sscanf(line->c_str(), "some %15s %d %15s %255s", what.data(), &rank, port.data(), word.data()) != 4)
          continue;
        if (secret != word.data() || rank < 0 || rank >= size_) continue;
        return Visitor{what.data(), port.data(), rank, std::move(socket)};
      }
    };
    if (rank_ == 0) {
      if (by_file) {
        std::random_device random;
        secret = fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
        std::array<char, 256> name{};
        gethostname(name.data(), name.size() - 1);
        write_for_this_user(at, fmt::format("{} {} {}\n", name.data(), port_of(own), secret));
      }
      for (int others = 1; others < size_; ++others) {
        Visitor one = receive_visitor(fmt::format("{} of the other ranks", size_ - others));
        const auto r = static_cast<std::size_t>(one.rank);
        if (one.what != "join" || one.rank == 0 || peers_[r])
          failed("two processes say that they are rank {}, or ranks of another run came: SOME_RANKS_AT is {}", one.rank,
                 at);
        places[r] = host_at_other_end(one.socket) + " " + one.port;
        peers_[r] = std::move(one.socket);
      }
      std::string all;
      for (std::size_t r = 1; r < places.size(); ++r) all += places[r] + " ";
      for (std::size_t r = 1; r < peers_.size(); ++r) {
        if (!send_all(peers_[r], all + "\n")) too_late(fmt::format("rank {}", r));
      }
      if (by_file) std::remove(at.c_str());  // the next run writes its own
    } else {
      Address root = by_file ? Address{} : parse_address(at);
      for (bool greeted = false; !greeted;) {
        if (seconds_since(begin) > seconds_to_meet) too_late("rank 0");
        if (by_file && exists_path(at)) {
          std::ifstream(at) >> root.host >> root.port >> secret;
        }
        if (!root.port.empty()) peers_[0] = connect_to(root);
        greeted = peers_[0] && send_all(peers_[0], hello("join"));
        if (!greeted) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      const auto all = receive_line(peers_[0], static_cast<std::size_t>(size_) * 160, seconds_to_meet);
      if (!all) failed("rank 0 sent this one away, or ended: do all ranks have the same SOME_RANKS_AT and _SECRET?");
      std::istringstream words(*all);
      for (std::size_t r = 1; r < places.size(); ++r) {
        std::string host, port;
        words >> host >> port;
        places[r] = host + " " + port;
      }
      for (int r = 1; r < rank_; ++r)
        peers_[static_cast<std::size_t>(r)] = call(places[static_cast<std::size_t>(r)], hello("pair"));
      root_ = root;
    }
    // Those behind this rank call; so does the one before it, for its pulse, at any time.
    int missing = rank_ == 0 ? 0 : size_ - 1 - rank_;
    const auto take = [&] {
      Visitor one = receive_visitor("a rank");
      if (one.what == "pulse") {
        before_ = std::move(one.socket);
      } else {
        peers_[static_cast<std::size_t>(one.rank)] = std::move(one.socket);
        --missing;
      }
    };
    while (missing > 0) take();
    const int next = (rank_ + 1) % size_;
    if (next == 0) {
      next_ = connect_to(root_);
      if (!next_ || !send_all(next_, hello("pulse"))) too_late("rank 0");
    } else {
      next_ = call(places[static_cast<std::size_t>(next)], hello("pulse"));
    }
    while (!before_) take();
  }

  static Socket call(const std::string& place, const std::string& hello) {
    const std::size_t blank = place.rfind(' ');
    Socket socket = connect_to({place.substr(0, blank), place.substr(blank + 1)});
    if (!socket || !send_all(socket, hello)) failed("a rank at {} cannot be reached: {}", place, last_reason());
    return socket;
  }

  void watch() {
    const int before = (rank_ + size_ - 1) % size_;
    const double every = std::min(longest_between_beats, options_.timeout_seconds / 8);
    Silence quiet(every, Clock::now());
    auto beaten = Clock::time_point();
    bool left_in_peace = false;
    std::unique_lock lock(mutex_);
    while (!ending_) {
      lock.unlock();
      if (seconds_since(beaten) >= 0.9 * every) {
        ::send(next_.descriptor(), &beat, 1, MSG_NOSIGNAL);
        beaten = Clock::now();
      }
      std::array<char, 64> words{};
      const ssize_t count = moved(::recv(before_.descriptor(), words.data(), words.size(), 0), true);
      for (ssize_t i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (words[at] == end) abort_all(i + 1 < count ? static_cast<unsigned char>(words[at + 1]) : 1);
        left_in_peace = left_in_peace || words[at] == bye;
      }
      const double heard_nothing = quiet.after_look(count > 0, Clock::now());
      const double silence = count < 0 ? 0 : heard_nothing;  // 0: its end was heard
      lock.lock();
      if (ending_) break;
      if (!left_in_peace && (count < 0 || silence > options_.timeout_seconds)) {
        lock.unlock();
        if (options_.lost != nullptr) options_.lost(options_.whose, before, silence);
        abort_all(1);
      }
      lock.unlock();
      // Sooner where something comes: an end is passed on at once.
      if (!left_in_peace) wait_for(before_, POLLIN, every);
      lock.lock();
      changed_.wait_for(lock, std::chrono::milliseconds(20), [this] { return ending_; });
    }
  }

  const LinkOptions options_;
  const int rank_, size_;
  std::vector<Socket> peers_;
  Socket next_, before_;
  Address root_;
  std::thread watcher_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
};

}  // namespace

std::unique_ptr<Link> open_tcp_link(int rank, int size, const std::string& at, const LinkOptions& options) {
  return std::make_unique<TcpLink>(rank, size, at, options);
}

}  // namespace some
