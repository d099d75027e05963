// data show and tokenize: data files on their way to training.
#include <fmt/format.h>
#include <gradus/audio/audio_dataset.h>
#include <gradus/audio/audio_show.h>
#include <gradus/config/option_set.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/data_show.h>
#include <gradus/data/tokenize_file.h>
#include <gradus/text/tokenizer.h>
#include <gradus/trackers/progress_bar.h>
#include <gradus/vision/decode.h>
#include <gradus/vision/image_show.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <string_view>

#include "cli.h"
#include "reference.h"

namespace gradus::cli {
namespace {

struct FileOptions {
  std::string format = "";
  std::vector<std::string> columns = {};
  std::optional<std::string> field = std::nullopt;
  int64_t skip_bad_rows = 0;
  int64_t max_row_bytes = LoadOptions().max_row_bytes;
  int64_t max_expansion = LoadOptions().max_expansion;
  std::string split = "";
  bool keep_linebreaks = false;
  bool json = false;

  LoadOptions load() const {
    return {.format = format,
            .columns = columns,
            .keep_linebreaks = keep_linebreaks,
            .field = field,
            .skip_bad_rows = skip_bad_rows,
            .split = split,
            .max_row_bytes = max_row_bytes,
            .max_expansion = max_expansion};
  }
};
constexpr OptionRow<FileOptions> kFileRows[] = {
    {&FileOptions::format, "format", Group::data, any_value(),
     "parquet, arrow, csv, tsv, json, jsonl, text or tokens; empty: by the file's extension.",
     Origin::gradus},
    {&FileOptions::columns, "columns", Group::data, any_value(), "Only these columns.",
     Origin::gradus},
    {&FileOptions::field, "field", Group::data, any_value(),
     "JSON: the rows are the list under this key.", Origin::gradus},
    {&FileOptions::skip_bad_rows, "skip_bad_rows", Group::data, at_least(0),
     "Skip up to this many rows that cannot be read.", Origin::gradus},
    {&FileOptions::max_row_bytes, "max_row_bytes", Group::data, at_least(1),
     "Text, JSON and CSV files: a row of more bytes is an error.", Origin::gradus},
    {&FileOptions::max_expansion, "max_expansion", Group::data, at_least(1),
     "A packed file (.gz, .zst, Parquet, compressed Arrow) may take this many times its size when "
     "it is opened, and in any case 256 MiB.",
     Origin::gradus},
    {&FileOptions::split, "split", Group::data, any_value(), "Which split of a data set folder.",
     Origin::gradus},
    {&FileOptions::keep_linebreaks, "keep_linebreaks", Group::data, any_value(),
     "Text lines keep their line break.", Origin::gradus},
    {&FileOptions::json, "json", Group::program, any_value(), "Print one JSON document to stdout.",
     Origin::gradus},
};

struct ShowOptions {
  int64_t rows = 3;
  int64_t sample = 10000;
  std::optional<std::string> tokenizer_name = std::nullopt;
  std::optional<std::string> html = std::nullopt;
};
constexpr OptionRow<ShowOptions> kShowRows[] = {
    {&ShowOptions::rows, "rows", Group::data, at_least(0), "First rows to show.", Origin::gradus},
    {&ShowOptions::sample, "sample", Group::data, at_least(0),
     "Rows looked at for lengths and ranges; 0: all.", Origin::gradus},
    {&ShowOptions::tokenizer_name, "tokenizer_name", Group::data, any_value(),
     "A tokenizer folder: token ids are shown as text, too."},
    {&ShowOptions::html, "html", Group::output, any_value(),
     "Write the first rows of images or sound to this file, as a page with thumbnails or players.",
     Origin::gradus},
};

struct TokenizeFlags {
  std::optional<std::string> tokenizer_name = std::nullopt;
  std::optional<std::string> output = std::nullopt;
  std::string text_column = "text";
  bool append_eos = true;
  int64_t num_threads = 0;
  bool overwrite = false;
};
constexpr OptionRow<TokenizeFlags> kTokenizeRows[] = {
    {&TokenizeFlags::tokenizer_name, "tokenizer_name", Group::model, any_value(),
     "The tokenizer's folder, or a tokenizer.json."},
    {&TokenizeFlags::output, "output", Group::output, any_value(),
     "PREFIX of the files written: PREFIX.bin and PREFIX.idx.", Origin::gradus},
    {&TokenizeFlags::text_column, "text_column", Group::data, any_value(),
     "The column that holds the text.", Origin::gradus},
    {&TokenizeFlags::append_eos, "append_eos", Group::data, any_value(),
     "Put the end-of-text token after every document, when there is one.", Origin::gradus},
    {&TokenizeFlags::num_threads, "num_threads", Group::hardware, at_least(0),
     "Threads; 0: one per core.", Origin::gradus},
    {&TokenizeFlags::overwrite, "overwrite", Group::output, any_value(),
     "Start again instead of continuing an unfinished run.", Origin::gradus},
};

// The words that are files, up to the first flag; the flags are what is left.
std::vector<std::string> take_files(Words& words) {
  std::vector<std::string> files;
  while (!words.empty() && !words.front().starts_with("-")) {
    files.push_back(words.front());
    words = words.subspan(1);
  }
  return files;
}

std::shared_ptr<Tokenizer> open_tokenizer(const std::string& path) {
  return std::filesystem::is_directory(path) ? Tokenizer::from_pretrained(path)
                                             : Tokenizer::from_file(path);
}

bool is_image(const std::string& bytes) try {
  image_info(bytes);
  return true;
} catch (const Error&) {
  return false;
}

// Whether a cell is the path of an image that is there: a text or an address may end like one.
bool names_image(const std::string& path, const std::filesystem::path& folder) {
  const auto file = folder / expand_user(path);
  auto ending = file.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return char(std::tolower(letter)); });
  std::error_code ignored;
  return (ending == ".png" || ending == ".jpg" || ending == ".jpeg" || ending == ".webp") &&
         std::filesystem::is_regular_file(file, ignored);
}

// Whether a cell is an image as the task reads them: a path, the bytes of an image, or both as
// `datasets.Image` stores them.
bool is_image_cell(const Value& cell, const std::filesystem::path& folder) {
  if (cell.is_string())
    return names_image(cell.str(), folder) || (cell.str().size() > 8 && is_image(cell.str()));
  if (!cell.is_nested() || !cell.json().is_object()) return false;
  const auto bytes = cell.json().find("bytes"), path = cell.json().find("path");
  if (bytes != cell.json().end() && bytes->is_string())
    return is_image(bytes->get_ref<const std::string&>());
  return path != cell.json().end() && path->is_string() &&
         names_image(path->get_ref<const std::string&>(), folder);
}

// The images of a folder by classes, or of files with a column of images; null for other data.
std::shared_ptr<ImageSource> open_images(const std::vector<std::string>& files,
                                         const LoadOptions& load) {
  if (files.size() == 1 && is_image_folder(expand_user(files.front())))
    return image_folders({files.front()}).front();
  static constexpr std::string_view kTables[] = {".parquet", ".arrow", ".csv",
                                                 ".tsv",     ".json",  ".jsonl"};
  const auto paths = resolve_data_files(files, load);
  for (const auto& path : paths)
    if (std::find(std::begin(kTables), std::end(kTables), path.extension().string()) ==
        std::end(kTables))
      return nullptr;
  const auto first = stream_dataset(files, load)->next();
  ImageTableOptions options{.image_column = "", .label_column = "", .where = files.front()};
  if (!first) return nullptr;
  const auto given = expand_user(files.front());
  options.folder = std::filesystem::is_directory(given) ? given : paths.front().parent_path();
  for (const auto& [name, value] : *first) {
    if (is_image_cell(value, options.folder)) options.image_column = name;
    const bool is_class = value.is_int() || value.is_string();
    if (is_class && (name == "label" || name == "labels")) options.label_column = name;
  }
  if (options.image_column.empty()) return nullptr;
  const auto table = load_dataset(files, load);
  return image_table(table, table->columns(), options);
}

void show_images(const ImageSource& images, const std::string& title, const ShowOptions& show,
                 bool json) {
  const auto report = image_show(images, {.rows = show.rows, .sample = show.sample});
  if (show.html) write_named_file(*show.html, image_show_html(images, report, title));
  print_line(json ? dump_json(report, 2) : format_image_show(report));
}

// The sound of a folder, or of files with a column of sound; no rows for other data. `options` gets
// the column and where its paths begin.
std::shared_ptr<const Dataset> open_sound(const std::vector<std::string>& files,
                                          const LoadOptions& load, AudioShowOptions& options) {
  if (files.size() == 1 && is_audio_folder(expand_user(files.front())))
    return open_audio_rows(expand_user(files.front()), {.split = load.split});
  const auto paths = resolve_data_files(files, load);
  // Packed files are not looked into: it would take as long as reading them.
  for (const auto& path : paths)
    for (const char* other : {".txt", ".bin", ".gz", ".zst"})
      if (path.extension() == other) return nullptr;
  const auto first = stream_dataset(files, load)->next();
  if (!first) return nullptr;
  options.audio_column = audio_column_of(*first);
  if (options.audio_column.empty()) return nullptr;
  options.folder = paths.front().parent_path();
  return load_dataset(files, load);
}

void show_sound(const Dataset& rows, const AudioShowOptions& options, const std::string& title,
                const std::optional<std::string>& html, bool json) {
  const auto report = audio_show(rows, options);
  if (html) write_named_file(*html, audio_show_html(rows, report, title, options));
  print_line(json ? dump_json(report, 2) : format_audio_show(report));
}

std::atomic<int> g_signal = 0;

}  // namespace

int data(Words words) {
  if (words.empty() || (words[0] != "show" && words[0] != "--help" && words[0] != "-h"))
    throw Error("G-CLI-4", ErrorKind::usage,
                words.empty() ? "gradus data: expected show, received nothing"
                              : "gradus data: expected show, received '" + words[0] + "'",
                "usage: gradus data show FILE… [--flags]");
  words = words.subspan(1);
  const auto files = take_files(words);
  FileOptions file;
  ShowOptions show;
  OptionSet set;
  set.add(show, std::span<const OptionRow<ShowOptions>>(kShowRows));
  set.add(file, std::span<const OptionRow<FileOptions>>(kFileRows));
  if (set.parse(words).help) {
    print_line(
        "usage: gradus data show FILE… [--flags]\n\n"
        "Schema, counts, lengths and first rows of data files; classes and sizes of images; "
        "lengths and rates of sound.\n\n" +
        set.help());
    return 0;
  }
  if (files.empty())
    throw Error("G-CLI-4", ErrorKind::usage,
                "gradus data show takes one or more files, received none",
                "usage: gradus data show FILE… [--flags]");
  const bool is_sound = files.size() == 1 && is_audio_folder(expand_user(files.front()));
  if (const auto images = is_sound ? nullptr : open_images(files, file.load())) {
    show_images(*images, files.front(), show, file.json);
    return 0;
  }
  AudioShowOptions sound{.rows = show.rows, .sample = show.sample};
  if (const auto rows = open_sound(files, file.load(), sound)) {
    show_sound(*rows, sound, files.front(), show.html, file.json);
    return 0;
  }
  if (show.html)
    throw Error("G-CLI-4", ErrorKind::usage,
                fmt::format("--html shows images or sound, and {} holds none", files.front()),
                "Leave --html out, or name a folder or file of images or sound.");
  DataShowOptions options{.load = file.load(), .rows = show.rows, .sample = show.sample};
  if (show.tokenizer_name)
    options.decode = [tokenizer = open_tokenizer(*show.tokenizer_name)](
                         std::span<const int64_t> ids) { return tokenizer->decode(ids); };
  const auto report = data_show(files, options);
  print_line(file.json ? dump_json(report, 2) : format_data_show(report));
  return 0;
}

std::vector<Flag> data_flags() { return flags_of(kShowRows, kFileRows); }

std::vector<Flag> tokenize_flags() { return flags_of(kTokenizeRows, kFileRows); }

int tokenize(Words words) {
  const auto files = take_files(words);
  FileOptions file;
  TokenizeFlags flags;
  OptionSet set;
  set.add(flags, std::span<const OptionRow<TokenizeFlags>>(kTokenizeRows));
  set.add(file, std::span<const OptionRow<FileOptions>>(kFileRows));
  if (set.parse(words).help) {
    print_line(
        "usage: gradus tokenize FILE… --tokenizer_name DIR --output PREFIX [--flags]\n\nText, "
        "JSONL, Parquet … to memory-mapped tokens. After an interrupt the same command "
        "continues.\n\n" +
        set.help());
    return 0;
  }
  const auto need = [](bool there, const char* what) {
    if (!there)
      throw Error("G-CLI-4", ErrorKind::usage, fmt::format("gradus tokenize needs {}", what),
                  "usage: gradus tokenize FILE… --tokenizer_name DIR --output PREFIX [--flags]");
  };
  need(!files.empty(), "one or more files");
  need(flags.tokenizer_name.has_value(), "--tokenizer_name");
  need(flags.output.has_value(), "--output");
  const auto tokenizer = open_tokenizer(*flags.tokenizer_name);
  TokenizeOptions options{.load = file.load(),
                          .text_column = flags.text_column,
                          .vocab_size = tokenizer->full_vocab_size(),
                          .tokenizer_key = *flags.tokenizer_name,
                          .threads = flags.num_threads,
                          .overwrite = flags.overwrite};
  if (flags.append_eos && tokenizer->eos_token_id())
    options.eos_token_id = uint32_t(*tokenizer->eos_token_id());
  ProgressBar bar({.total = 1000, .description = "tokenizing"});
  options.progress = [&](int64_t documents, int64_t tokens, std::optional<double> share) {
    bar.set_postfix(fmt::format("{} documents, {} tokens", documents, tokens));
    if (share) bar.update(int64_t(*share * 1000) - bar.done());
  };
  ::signal(SIGINT, [](int signal) { g_signal = signal; });
  ::signal(SIGTERM, [](int signal) { g_signal = signal; });
  options.stop = [] { return g_signal != 0; };
  const auto encode = [&](std::span<const std::string> texts) {
    std::vector<std::vector<uint32_t>> ids;
    for (const auto& encoding :
         tokenizer->encode_batch(texts, {.add_special_tokens = false, .ids_only = true}, {}, 1)) {
      const auto& each = encoding.ids();
      ids.emplace_back(each.begin(), each.end());
    }
    return ids;
  };
  const auto result = tokenize_files(files, *flags.output, encode, options);
  bar.close();
  const nlohmann::ordered_json document = {{"tokens_file", result.tokens_file.string()},
                                           {"index_file", result.index_file.string()},
                                           {"documents", result.documents},
                                           {"tokens", result.tokens},
                                           {"finished", result.finished}};
  if (file.json)
    print_line(dump_json(document, 2));
  else if (result.finished)
    print_line(fmt::format("{} tokens of {} documents in {} and {}", result.tokens,
                           result.documents, result.tokens_file.string(),
                           result.index_file.string()));
  if (result.finished) return 0;
  log_print("gradus: stopped; the same command continues from here.\n");
  return 128 + g_signal;
}

}  // namespace gradus::cli
