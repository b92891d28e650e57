#include "data/outlook.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/source.h"

namespace some::data {

DataOutlook look_at_data(const Host& host, const DataConfig& config, int seq_len) {
  DataOutlook out;
  // Byte-pair vocabularies of a few thousand tokens spend about four bytes of English on a token.
  constexpr double bytes_per_token = 4.0;
  constexpr std::int64_t sample = 500;
  try {
    const bool builtin = is_builtin(config.train);
    const std::int64_t limit = builtin && config.train_stories == 0 ? builtin_train_stories : config.train_stories;
    const StoryStream stream = StorySource(config.train, config, 0, limit).open(*host.threads);
    std::string story;
    double tokens = 0;
    std::int64_t count = 0;
    // Stories of the generator are as many as asked for; a file must be read to know.
    while ((!builtin || count < sample) && stream(story)) {
      if (count < sample) tokens += std::min<double>(seq_len, static_cast<double>(story.size()) / bytes_per_token + 1);
      ++count;
    }
    out.mean_tokens = count > 0 ? tokens / static_cast<double>(std::min(count, sample)) : 0;
    out.train_stories = builtin ? limit : count;
    if (config.valid.empty() && !builtin && config.train_stories == 0) {
      out.train_stories -= std::max<std::int64_t>(
          1, static_cast<std::int64_t>(std::llround(config.valid_share * static_cast<double>(count))));
    }
  } catch (const Error& error) {
    out.why_unknown = error.what();
  }
  return out;
}

}  // namespace some::data
