#include "text/corpus.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/files/json.h"
#include "text/pretokenize.h"
#include "text/utf8.h"

namespace some {
namespace {

namespace fs = std::filesystem;

// Reads the lines of one file in blocks, and checks that they are UTF-8.
class LineReader {
 public:
  explicit LineReader(std::string path) : path_(std::move(path)), file_(path_) { buffer_.resize(1u << 18); }

  // Appends the next line to `to`, without its line end ("\n" or "\r\n"); false at the end of the file.
  bool append_line(std::string& to) {
    const std::size_t begin = to.size();
    const std::uint64_t line_offset = offset_;
    bool any = false, ended = false;
    while (!ended) {
      if (at_ == filled_ && !fill()) break;
      any = true;
      const char* const from = buffer_.data() + at_;
      const auto* const newline = static_cast<const char*>(std::memchr(from, '\n', filled_ - at_));
      ended = newline != nullptr;
      const std::size_t length = ended ? static_cast<std::size_t>(newline - from) : filled_ - at_;
      if (to.size() + length > largest_text)
        bad_input(
            Code::text_too_long,
            "{}: the document at line {} has more than {} bytes; set the line between documents with data.separator",
            path_, line_ + 1, largest_text);
      to.append(from, length);
      at_ += length + (ended ? 1 : 0);
      offset_ += length + (ended ? 1 : 0);
    }
    if (!any) return false;
    ++line_;
    if (const auto bad = find_invalid_utf8(std::string_view(to).substr(begin))) {
      bad_input(Code::text_not_utf8, "{}: byte 0x{:02X} at offset {} (line {}) is not UTF-8; convert the file to UTF-8",
                path_, static_cast<unsigned char>(to[begin + *bad]), line_offset + *bad, line_);
    }
    if (to.size() > begin && to.back() == '\r') to.pop_back();
    // A byte-order mark is not part of the text.
    if (line_ == 1 && to.compare(begin, 3, "\xEF\xBB\xBF") == 0) to.erase(begin, 3);
    return true;
  }

  std::uint64_t line() const { return line_; }
  const std::string& path() const { return path_; }

 private:
  bool fill() {
    at_ = 0;
    filled_ = file_.read(buffer_.data(), buffer_.size());
    return filled_ > 0;
  }

  std::string path_;
  InputFile file_;
  std::string buffer_;
  std::size_t at_ = 0, filled_ = 0;
  std::uint64_t offset_ = 0, line_ = 0;
};

bool is_json_lines(const std::string& path) {
  std::string extension = fs::path(path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
}

bool is_blank(std::string_view text) {
  const char* const end = text.data() + text.size();
  return skip_whitespace(text.data(), end, char_classes()) == end;
}

// Collects files and links to files, recursively. Skips hidden entries, and links to folders, which might form a cycle.
void add_files_in(const fs::path& folder, std::vector<std::string>& files) {
  for (const std::string& name : list_folder(folder.string())) {
    if (name.starts_with('.')) continue;
    const fs::path path = folder / name;
    if (file_exists(path.string()))
      files.push_back(path.string());
    else if (folder_exists(path.string()) && !is_link(path.string()))
      add_files_in(path, files);
  }
}

std::vector<std::string> files_of(const std::vector<std::string>& paths) {
  if (paths.empty()) bad_input(Code::argument_missing, "no text; pass files or folders");
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!exists_path(path)) {
      bad_input(Code::file_not_found,
                "{}: not found; must be a text file, a .jsonl file or a folder of these, or builtin:stories for text "
                "that needs no file",
                path);
    }
    if (!folder_exists(path)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> found;
    add_files_in(path, found);
    if (found.empty()) bad_input(Code::folder_empty, "{}: the folder has no text files or .jsonl files", path);
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

}  // namespace

struct CorpusReader::Impl {
  explicit Impl(CorpusOptions given) : options(std::move(given)), files(files_of(options.paths)) {
    if (!options.separator.empty() && is_blank(options.separator)) {
      bad_input(Code::setting_out_of_range,
                "{} is blank; set the line between two documents, such as <|endoftext|>, or \"\" for one document per "
                "file, or data.unit = \"paragraph\" to split at blank lines",
                "data.separator");
    }
    if (options.separator.find_first_of("\r\n") != std::string::npos)
      bad_input(Code::setting_out_of_range, "{} contains a line end; must be a single line", "data.separator");
    if (options.field.empty())
      bad_input(Code::setting_out_of_range, "the field of JSON lines is empty; set a name such as text");
    open_next();  // opened here, so that a file that cannot be opened is reported immediately
  }

  void open_next() {
    reader.reset();
    if (file < files.size()) {
      reader = std::make_unique<LineReader>(files[file]);
      json_lines = options.json_lines || is_json_lines(files[file]);
      ++file;
    }
  }

  bool is_separator(std::string_view line) const {
    if (options.separator.empty() || line.size() < options.separator.size()) return false;
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    return line == options.separator;
  }

  // Reads one document of a plain text, which may be empty. False at the end of the file if nothing was read.
  bool read_plain(std::string& story) {
    story.clear();
    bool any = false;
    for (;;) {
      const std::size_t begin = story.size();
      if (!reader->append_line(story)) break;
      any = true;
      const std::string_view added = std::string_view(story).substr(begin);
      if (is_separator(added)) {
        story.resize(begin);
        break;
      }
      if (options.unit == TextUnit::line) return true;
      if (options.unit == TextUnit::paragraph && is_blank(added)) {
        story.resize(begin);
        if (begin > 0) break;
        continue;  // blank lines before a paragraph
      }
      story.push_back('\n');
    }
    if (!any) return false;
    while (!story.empty() && story.back() == '\n') story.pop_back();
    story.erase(0, std::min(story.find_first_not_of('\n'), story.size()));
    return true;
  }

  // Returns the next unit of the current JSON line's text.
  bool read_rest(std::string& story) {
    story.clear();
    while (rest_at < rest.size()) {
      const std::size_t end = std::min(rest.find('\n', rest_at), rest.size());
      std::string_view part = std::string_view(rest).substr(rest_at, end - rest_at);
      rest_at = end + 1;
      if (!part.empty() && part.back() == '\r') part.remove_suffix(1);
      const bool blank = is_blank(part);
      if (blank && !story.empty()) break;
      if (blank) continue;
      if (!story.empty()) story += '\n';
      story += part;
      if (options.unit == TextUnit::line) break;
    }
    return !story.empty();
  }

  bool read_json_line(std::string& story) {
    if (read_rest(story)) return true;
    do {
      line.clear();
      if (!reader->append_line(line)) return false;
    } while (is_blank(line));
    nlohmann::json object = parse_json(line, fmt::format("{}:{}", reader->path(), reader->line()));
    const auto found = object.is_object() ? object.find(options.field) : object.end();
    if (found == object.end() || !found->is_string()) {
      bad_input(Code::text_field_missing,
                "{}:{}: no string named \"{}\"; expected an object like {{\"{}\": \"a document\"}} on every line",
                reader->path(), reader->line(), options.field, options.field);
    }
    if (options.unit == TextUnit::document) {
      story = std::move(found->get_ref<std::string&>());
      return true;
    }
    rest = std::move(found->get_ref<std::string&>());
    rest_at = 0;
    read_rest(story);  // gives an empty document if the text is blank
    return true;
  }

  bool next(std::string& story) {
    while (reader && (options.limit == 0 || documents < options.limit)) {
      if (!(json_lines ? read_json_line(story) : read_plain(story))) {
        open_next();
        continue;
      }
      if (is_blank(story)) {
        ++empty_documents;
        continue;
      }
      // The previous hash is the seed, so the result also depends on the boundaries of documents.
      hash = hash_bytes(story.data(), story.size(), hash);
      ++documents;
      bytes += story.size();
      return true;
    }
    if (documents == 0) {
      const std::string name = options.paths.size() == 1 ? options.paths[0] : options.paths[0] + " and others";
      bad_input(Code::text_empty, "{}: contains no text ({} empty documents)", name, empty_documents);
    }
    return false;
  }

  CorpusOptions options;
  std::vector<std::string> files;
  std::size_t file = 0;
  std::unique_ptr<LineReader> reader;
  bool json_lines = false;
  std::string line;
  std::string rest;  // text of the current JSON line, returned from rest_at on
  std::size_t rest_at = 0;
  std::uint64_t hash = 0;
  std::uint64_t documents = 0, empty_documents = 0, bytes = 0;
};

CorpusReader::CorpusReader(CorpusOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
CorpusReader::~CorpusReader() = default;
CorpusReader::CorpusReader(CorpusReader&&) noexcept = default;
CorpusReader& CorpusReader::operator=(CorpusReader&&) noexcept = default;

bool CorpusReader::next(std::string& story) { return impl_->next(story); }
std::uint64_t CorpusReader::documents() const { return impl_->documents; }
std::uint64_t CorpusReader::empty_documents() const { return impl_->empty_documents; }
std::uint64_t CorpusReader::bytes() const { return impl_->bytes; }
std::uint64_t CorpusReader::content_hash() const { return impl_->hash; }

}  // namespace some
