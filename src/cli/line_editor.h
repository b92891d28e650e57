// Reads lines of input: with editing keys and history on a terminal, as plain lines otherwise.
#pragma once

#include <string>

namespace some {

// Line editing uses libedit, loaded at run time: a program built here also runs without the library and then reads
// lines as the terminal delivers them.
class LineEditor {
 public:
  // `history`: file that keeps the entered lines across sessions; empty: no history.
  explicit LineEditor(std::string history);

  enum class ReadResult {
    line,
    interrupted,  // Ctrl-C: the line is discarded
    end           // Ctrl-D or end of input
  };
  // Reads one line. Shows the prompt if standard input and output are terminals.
  ReadResult read(const std::string& prompt, std::string& line);
  bool interactive() const { return interactive_; }

 private:
  std::string history_;
  bool interactive_ = false;
  char* (*edit_)(const char*) = nullptr;  // returns one line, allocated with malloc
  void (*prepare_)(int) = nullptr;
  int (*add_history_)(const char*) = nullptr;
  int (*write_history_)(const char*) = nullptr;
};

// Returns the path of a command's history file in the user's state folder, which is created; empty if there is none.
std::string history_file(const std::string& name);

// Blocks Ctrl-C if the input is a terminal: it no longer ends the program but is reported by interrupted() and
// LineEditor::read. Call before other threads start. (No handler may run while threads compute: see watch_signals.)
void block_interrupts();
bool interrupted();  // true if Ctrl-C was typed since the last call

}  // namespace some
