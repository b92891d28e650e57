// The HTTP server: which requests it answers, which it rejects, and that no client can block it.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "expect_error.h"
#include "http/client.h"
#include "http/http.h"

namespace some {
namespace {

using std::chrono::milliseconds;

struct Served {
  explicit Served(ServerSettings settings = {})
      : server(std::move(settings), [this](const Request& request, Answer answer) { handle(request, answer); }) {}

  void handle(const Request& request, const Answer& answer) {
    if (request.path == "/stream") {
      const std::lock_guard lock(mutex);
      streams.push_back(answer.stream("text/event-stream"));
      return;
    }
    if (request.path == "/forgotten") return;
    if (request.path == "/throws") throw std::runtime_error("no");
    if (request.path == "/later") {
      std::thread([answer] { answer.respond(text_response(200, "later")); }).detach();
      return;
    }
    Response response = text_response(200, request.path + " " + request.value("q") + request.body);
    response.etag = "\"one\"";
    answer.respond(std::move(response));
  }
  // Returns the streams once there are `count`: a client may see the beginning of a stream slightly earlier.
  std::vector<std::shared_ptr<Stream>> wait_for_streams(std::size_t count) {
    for (;; std::this_thread::sleep_for(milliseconds(1))) {
      const std::lock_guard lock(mutex);
      if (streams.size() >= count) return streams;
    }
  }

  std::mutex mutex;
  std::vector<std::shared_ptr<Stream>> streams;
  Server server;
};

int status_of(int port, const std::string& bytes) {
  Client client(port);
  client.send(bytes);
  return client.answer().status;
}

std::string line(const std::string& first, const std::string& more = "Host: 127.0.0.1\r\n") {
  return first + " HTTP/1.1\r\n" + more + "\r\n";
}

TEST(Server, AnswersRequestsOneAfterTheOther) {
  Served served;
  Client client(served.server.port());
  EXPECT_EQ(client.get("/a?q=x%20y%2F&r=1").body, "/a x y/\n");
  EXPECT_EQ(client.get("/later").body, "later\n");
  const auto again = client.get("/a", "If-None-Match: \"one\"\r\n");
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.body, "");
  EXPECT_EQ(client.get("/a", "If-None-Match: \"two\"\r\n").status, 200);
  client.send(line("HEAD /a"));
  const auto head = client.answer(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.head.find("Content-Length: 4"), std::string::npos);
  EXPECT_EQ(client.get("/b").body, "/b \n");
}

TEST(Server, SendsHeadersThatForbidLoadingAndSharing) {
  Served served;
  const std::string head = get_once(served.server.port(), "/a").head;
  for (const char* field :
       {"Content-Security-Policy: default-src 'none'", "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer", "X-Frame-Options: DENY", "Cross-Origin-Resource-Policy: same-origin"})
    EXPECT_NE(head.find(field), std::string::npos) << head;
}

TEST(Server, WhatIsNoRequestIsRefused) {
  Served served;
  const int port = served.server.port();
  EXPECT_EQ(status_of(port, "nonsense\r\n\r\n"), 400);
  EXPECT_EQ(status_of(port, std::string("\0\1\2\3\r\n\r\n", 8)), 400);
  EXPECT_EQ(status_of(port, line("GET /a?q=%zz")), 400);
  EXPECT_EQ(status_of(port, line("GET http://127.0.0.1/a")), 400);
  EXPECT_EQ(status_of(port, line("DELETE /a")), 405);
  EXPECT_EQ(status_of(port, line("GET /a", "Host: 127.0.0.1\r\nX: " + std::string(20000, 'x') + "\r\n")), 431);
  EXPECT_EQ(status_of(port, line("POST /a",
                                 "Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
                                 "10000000\r\n") +
                                std::string(100000, 'x')),
            413);
  EXPECT_EQ(status_of(port, line("GET /forgotten")), 500);
  EXPECT_EQ(status_of(port, line("GET /throws")), 500);
  EXPECT_EQ(get_once(port, "/still").body, "/still \n");
}

// DNS rebinding: a page of another site whose name resolves to this machine sends its own host name.
TEST(Server, AnswersOnlyToNamesOfThisMachine) {
  Served served;
  const int port = served.server.port();
  for (const char* name : {"localhost", "localhost:6060", "127.0.0.1:1", "[::1]:80", "[::1]"})
    EXPECT_EQ(status_of(port, line("GET /a", fmt::format("Host: {}\r\n", name))), 200) << name;
  for (const char* name : {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example:6060", "8.8.8.8", ""})
    EXPECT_EQ(status_of(port, line("GET /a", fmt::format("Host: {}\r\n", name))), 421) << name;
  EXPECT_EQ(status_of(port, line("GET /a", "")), 421);
}

TEST(Server, ATokenIsAskedForWhereThereIsOne) {
  ServerSettings settings;
  settings.token = "0123456789abcdef";
  Served served(settings);
  const int port = served.server.port();
  for (const char* target :
       {"/a", "/a?token=", "/a?token=0123456789abcdee", "/a?token=0123456789abcdef0", "/a?token=0"})
    EXPECT_EQ(get_once(port, target).status, 403) << target;
  EXPECT_EQ(get_once(port, "/a?token=0123456789abcdef").status, 200);
  EXPECT_EQ(status_of(port, line("GET /a?token=0123456789abcdef", "Host: machine.example\r\n")), 200);
}

TEST(Server, OnlyItsOwnPagesMayAsk) {
  Served served;
  const int port = served.server.port();
  const auto post = [&](const std::string& more) {
    return status_of(port, line("POST /a", "Host: localhost:6060\r\nContent-Length: 2\r\n" + more) + "{}");
  };
  const std::string json = "Content-Type: application/json\r\n";
  EXPECT_EQ(post(json), 200);
  EXPECT_EQ(post(json + "Origin: http://localhost:6060\r\nSec-Fetch-Site: same-origin\r\n"), 200);
  EXPECT_EQ(post(json + "Origin: http://evil.example\r\n"), 403);
  EXPECT_EQ(post(json + "Origin: null\r\n"), 403);
  EXPECT_EQ(post(json + "Sec-Fetch-Site: cross-site\r\n"), 403);
  EXPECT_EQ(post("Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(post(""), 415);
}

TEST(Server, ARequestThatTricklesInIsGivenUp) {
  ServerSettings settings;
  settings.read_time = milliseconds(300);
  Served served(settings);
  Client client(served.server.port());
  const auto begin = std::chrono::steady_clock::now();
  client.send("GET /a HTTP/1.1\r\nHo");
  EXPECT_TRUE(client.read_enough([](const std::string&) { return false; }));
  EXPECT_TRUE(client.ended());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  // The client sees the end slightly before the server has released the connection.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (served.server.connections() != 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(served.server.connections(), 0U);
}

TEST(Server, ASlowReaderIsGivenUpAndHoldsNobodyUp) {
  ServerSettings settings;
  settings.max_pending_bytes = 256 << 10;
  Served served(settings);
  Client slow(served.server.port(), 4096), quick(served.server.port());
  slow.send(line("GET /stream"));
  quick.send(line("GET /stream"));
  // The streams cannot be matched to clients: the one that ends is the one that is not read.
  std::vector<std::shared_ptr<Stream>> streams = served.wait_for_streams(2);
  ASSERT_TRUE(quick.read_until("text/event-stream"));
  const SharedText piece = shared_text(std::string(16 << 10, 'x'));
  bool slow_goes_on = true;
  std::atomic<bool> stop{false};
  std::atomic<std::size_t> received{0};
  std::thread reading([&] {
    quick.read_enough(
        [&](const std::string& text) {
          received = text.size();
          return stop.load();
        },
        milliseconds(60000));
  });
  int open = 2;
  for (std::size_t sent = 0; sent < 2000 && slow_goes_on; ++sent) {
    open = 0;
    for (auto& stream : streams) {
      if (stream && !stream->send(piece)) stream = nullptr;
      if (stream) ++open;
    }
    slow_goes_on = open == 2;
    // Waits for the fast reader: on a busy machine it would otherwise fall behind as well.
    for (int i = 0; i < 30000 && received < sent * piece->size(); ++i) std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_FALSE(slow_goes_on) << "nothing that is not read may pile up";
  EXPECT_EQ(open, 1) << "the quick reader stays";
  EXPECT_EQ(get_once(served.server.port(), "/a").status, 200);
  stop = true;
  for (auto& stream : streams) {
    if (stream) stream->send(shared_text("end"));
  }
  reading.join();
}

TEST(Server, AReaderThatGoesIsNoticed) {
  Served served;
  {
    Client client(served.server.port());
    client.send(line("GET /stream"));
    ASSERT_TRUE(client.read_until("text/event-stream"));
    EXPECT_TRUE(served.wait_for_streams(1)[0]->is_open());
  }
  const std::shared_ptr<Stream> stream = served.wait_for_streams(1)[0];
  for (int i = 0; i < 3000 && stream->is_open(); ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_FALSE(stream->is_open());
  EXPECT_FALSE(stream->send(shared_text("x")));
}

TEST(Server, ConnectionsAndRequestsAreLimited) {
  ServerSettings settings;
  settings.max_connections = 10;
  Served served(settings);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(std::make_unique<Client>(served.server.port()));
    EXPECT_EQ(clients.back()->get("/a").status, 200);
  }
  EXPECT_EQ(get_once(served.server.port(), "/a").status, 200) << "one that waits makes room";
  EXPECT_EQ(clients[0]->get("/a").status, 0) << "the one that was used first";
  EXPECT_EQ(clients[3]->get("/a").status, 200);
  clients.clear();
  int status = 0;
  for (int i = 0; i < 3000 && status != 200; ++i) {
    status = get_once(served.server.port(), "/a").status;
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(status, 200) << "those that went make room";

  ServerSettings few;
  few.request_burst = 5;
  few.requests_per_second = 0.001;
  Served rationed(few);
  Client client(rationed.server.port());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client.get("/a").status, 200);
  EXPECT_EQ(client.get("/a").status, 429);
}

// An address that holds all its connections open does not lock out another one.
TEST(Server, AnAddressWithManyConnectionsMakesRoomForOthers) {
  ServerSettings settings;
  settings.max_connections = 10;
  Served served(settings);
  std::vector<std::unique_ptr<Client>> many;
  for (int i = 0; i < 10; ++i) {
    many.push_back(std::make_unique<Client>(served.server.port(), 0, "127.0.0.2"));
    EXPECT_EQ(many.back()->get("/a").status, 200);
  }
  Client other(served.server.port(), 0, "127.0.0.3");
  for (int i = 0; i < 20; ++i) {
    many.push_back(std::make_unique<Client>(served.server.port(), 0, "127.0.0.2"));
    many.back()->get("/a");
    EXPECT_EQ(other.get("/a").status, 200) << i;
  }
  EXPECT_LE(served.server.connections(), 10U);
}

TEST(Server, ATypeMayHaveParameters) {
  Served served;
  const auto post = [&](const std::string& type) {
    return status_of(served.server.port(),
                     line("POST /a", "Host: localhost\r\nContent-Length: 2\r\nContent-Type: " + type + "\r\n") + "{}");
  };
  EXPECT_EQ(post("application/json; charset=utf-8"), 200);
  EXPECT_EQ(post("Application/JSON"), 200);
  EXPECT_EQ(post("application/jsonp"), 415);
  EXPECT_EQ(post("text/plain; application/json"), 415);
}

// Settings of `some serve`: DELETE, errors in another format, and any host name if the handler authenticates clients.
TEST(Server, TheHandlerMayDoMore) {
  ServerSettings settings;
  settings.removes = settings.any_host = true;
  settings.refusal = [](int status, const std::string& words) {
    Response response;
    response.status = status;
    response.body = shared_text("{\"refused\": \"" + words + "\"}");
    return response;
  };
  Served served(settings);
  const int port = served.server.port();
  EXPECT_EQ(status_of(port, line("DELETE /a", "Host: machine.example\r\n")), 200);
  EXPECT_EQ(status_of(port, line("DELETE /a", "Host: machine.example\r\nOrigin: http://evil.example\r\n")), 403);
  Client client(port);
  client.send(line("PUT /a"));
  const auto answer = client.answer();
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.body.rfind("{\"refused\"", 0), 0U) << answer.body;
  EXPECT_NE(answer.head.find("Allow: GET, HEAD, POST, DELETE"), std::string::npos);
}

TEST(Server, AClientThatLeavesBeforeItsResponseIsNoticed) {
  ServerSettings settings;
  settings.notice_leaving = true;
  std::mutex mutex;
  std::vector<Answer> waiting;
  Server server(settings, [&](const Request&, const Answer& answer) {
    const std::lock_guard lock(mutex);
    waiting.push_back(answer);
  });
  const auto wait_for = [&](std::size_t count) {
    for (;; std::this_thread::sleep_for(milliseconds(1))) {
      const std::lock_guard lock(mutex);
      if (waiting.size() >= count) return waiting.back();
    }
  };
  {
    Client client(server.port());
    client.send(line("GET /a"));
    const Answer answer = wait_for(1);
    EXPECT_TRUE(answer.is_open());
    EXPECT_EQ(server.unanswered(), 1U);
    answer.respond(text_response(200, "first"));
    EXPECT_EQ(client.answer().body, "first\n");
    // A connection that was watched before is watched again, and a request that arrived early is not lost.
    client.send(line("GET /b") + line("GET /c"));
    wait_for(2).respond(text_response(200, "second"));
    EXPECT_EQ(client.answer().body, "second\n");
    EXPECT_TRUE(wait_for(3).is_open());
  }
  const Answer answer = wait_for(3);
  for (int i = 0; i < 3000 && answer.is_open(); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_FALSE(answer.is_open());
  answer.respond(text_response(200, "nobody reads this"));
  EXPECT_EQ(server.unanswered(), 0U);
}

TEST(Server, ConnectionsAreRefusedAndOpenOnesStay) {
  Served served;
  Client before(served.server.port());
  EXPECT_EQ(before.get("/a").status, 200);
  served.server.refuse_connections();
  EXPECT_EQ(before.get("/a").status, 200);
  int status = 200;
  for (int i = 0; i < 3000 && status != 0; ++i) status = get_once(served.server.port(), "/a").status;
  EXPECT_EQ(status, 0);
}

TEST(Server, APortInUseIsReported) {
  Served served;
  ServerSettings same;
  same.port = served.server.port();
  EXPECT_THROW(Served{same}, AddressTaken);
  EXPECT_ERROR(Served{same}, Code::address_taken, fmt::to_string(same.port));
  ServerSettings no_place;
  no_place.host = "no address";
  EXPECT_ERROR(Served{no_place}, Code::address_unusable, "no address");
}

}  // namespace
}  // namespace some
