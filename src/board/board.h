// The board: a page for watching runs during training, served to browsers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "board/watch.h"
#include "core/log.h"
#include "http/http.h"
#include "runtime/machine.h"

namespace some {

struct BoardSettings {
  WatchSettings watch;
  ServerSettings server;
  bool read_only = false;  // disables generation, experiments and changes of runs
  DeviceChoice device;     // device for opened models
  int threads = 0;
};

class Board {
 public:
  // Starts serving. An address reachable from other machines requires an access token, which is generated if the
  // settings have none.
  explicit Board(BoardSettings settings, const Log& log = {});
  ~Board();  // closes all connections
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int port() const;
  // Returns the URL to open in a browser. `run`: folder to show first. If the board permits changes, the URL contains
  // the key that they require, after the "#": browsers do not send that part to servers.
  std::string address(const std::string& run = "") const;
  std::size_t viewers() const;
  const Watch& watch() const;

 private:
  class BoardImpl;
  std::unique_ptr<BoardImpl> rooms_;
};

}  // namespace some
