// Lines typed by a person: with editing keys and history on a terminal, plainly read elsewhere.
#pragma once

#include <string>

namespace some {

// The editing is libedit's, opened at run time: a program built here runs where the library is missing, and then reads
// lines as the terminal gives them.
class LineEditor {
 public:
  // `history`: a file that keeps what was typed from one session to the next; empty: none.
  explicit LineEditor(std::string history);

  enum class Got {
    line,
    interrupted,  // Ctrl-C: what was typed is given up
    end           // Ctrl-D, or the end of the input
  };
  // Shows the prompt where a terminal is on both sides.
  Got read(const std::string& prompt, std::string& line);
  bool interactive() const { return interactive_; }

 private:
  std::string history_;
  bool interactive_ = false;
  char* (*edit_)(const char*) = nullptr;  // gives one line, made with malloc
  void (*prepare_)(int) = nullptr;
  int (*add_history_)(const char*) = nullptr;
  int (*write_history_)(const char*) = nullptr;
};

// Where the history of a command is kept: a file in the user's state folder, which is made; empty where there is none.
std::string history_file(const std::string& name);

// Where a person sits at a terminal, Ctrl-C does not end the program from here on: it is held back for interrupted() to
// see, and for LineEditor::read. Before other threads begin. (No handler may run while threads compute: see
// watch_signals.)
void hold_interrupts();
bool interrupted();  // whether Ctrl-C was typed since it was last asked

}  // namespace some
