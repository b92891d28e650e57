// Registers every command, in the order of the help. A new command is one file that defines NAME_command() and one line
// here; everything else is derived from its CommandSpec.
#include "cli/program.h"

namespace some {

#define SOME_COMMAND(name)               \
  do {                                   \
    extern CommandSpec name##_command(); \
    app.add(name##_command());           \
  } while (false)

void add_commands(Command& app) {
  SOME_COMMAND(train);
  SOME_COMMAND(eval);
  SOME_COMMAND(generate);
  SOME_COMMAND(chat);
  SOME_COMMAND(serve);
  SOME_COMMAND(adapt);
  SOME_COMMAND(read);
  SOME_COMMAND(memory);
  SOME_COMMAND(needle);
  SOME_COMMAND(continual);
  SOME_COMMAND(compress);
  SOME_COMMAND(decompress);
  SOME_COMMAND(export);
  SOME_COMMAND(import);
  SOME_COMMAND(library);
  SOME_COMMAND(board);
  SOME_COMMAND(inspect);
  SOME_COMMAND(trace);
  SOME_COMMAND(guilds);
  SOME_COMMAND(ablate);
  SOME_COMMAND(routes);
  SOME_COMMAND(info);
  SOME_COMMAND(settings);
  SOME_COMMAND(runs);
  SOME_COMMAND(compare);
  SOME_COMMAND(plot);
  SOME_COMMAND(doctor);
  SOME_COMMAND(help);
  SOME_COMMAND(lr);
  SOME_COMMAND(sweep);
  SOME_COMMAND(lab);
  SOME_COMMAND(bench);
  SOME_COMMAND(verify);
  SOME_COMMAND(tokenizer);
  SOME_COMMAND(data);
  SOME_COMMAND(completion);
  SOME_COMMAND(manual);
  SOME_COMMAND(complete);
}

}  // namespace some
