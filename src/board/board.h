// The board: a page on which runs are watched while they train, served to browsers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "board/http.h"
#include "board/watch.h"
#include "core/log.h"
#include "runtime/machine.h"

namespace some {

struct BoardSettings {
  WatchSettings watch;
  ServerSettings server;
  bool read_only = false;  // nothing can be asked of the models
  DeviceChoice device;     // that models are opened on
  int threads = 0;
};

class Board {
 public:
  // Serves from here on. An address that others can reach gets a token, unless the settings have one.
  explicit Board(BoardSettings settings, const Log& log = {});
  ~Board();  // no viewer is left waiting
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int port() const;
  // What to open in a browser. `run`: a folder to be shown first.
  std::string address(const std::string& run = "") const;
  std::size_t viewers() const;
  const Watch& watch() const;

 private:
  class Rooms;
  std::unique_ptr<Rooms> rooms_;
};

}  // namespace some
