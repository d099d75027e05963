#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/data/token_file.h>

#include <cstring>

#include "core/mapped_file.h"
#include "data/sources/source_errors.h"
#include "data/sources/token_index.h"

namespace gradus {
namespace fs = std::filesystem;
using sources::with_commas;

namespace {

constexpr int64_t kHeaderBytes = 256 * sizeof(int32_t);

Error bad_tokens(const fs::path& file, const std::string& reason, const std::string& advice) {
  return {"G-SRC-12", ErrorKind::data,
          fmt::format("cannot read the token file {}: {}", file.string(), reason), advice};
}

int32_t word_at(const MappedFile& file, int64_t index) {
  int32_t word = 0;
  std::memcpy(&word, file.data() + index * int64_t(sizeof word), sizeof word);
  return word;
}

struct Head {
  TokenLayout layout = TokenLayout::raw;
  TokenType type = TokenType::uint16;
  int64_t bytes = 0;                  // before the ids
  std::optional<int64_t> count = {};  // as the header says
};

std::optional<Head> read_llm_c_head(const MappedFile& file) {
  if (file.size() < sizeof(int32_t)) return std::nullopt;
  const auto magic = word_at(file, 0);
  if (magic != 20240520 && magic != 20240801) return std::nullopt;
  if (int64_t(file.size()) < kHeaderBytes)
    throw bad_tokens(
        file.path(),
        fmt::format("it begins as an llm.c file, but has {} bytes and no full header of {}",
                    file.size(), kHeaderBytes),
        "The file is cut short. Make it again.");
  const auto version = word_at(file, 1);
  const int32_t expected = magic == 20240520 ? 1 : 7;
  if (version != expected)
    throw bad_tokens(file.path(),
                     fmt::format("llm.c header of magic {} has version {}; expected {}", magic,
                                 version, expected),
                     "Make the file with llm.c's current data scripts.");
  Head head{.layout = TokenLayout::llm_c,
            .type = magic == 20240520 ? TokenType::uint16 : TokenType::uint32,
            .bytes = kHeaderBytes};
  head.count = int64_t(uint32_t(word_at(file, 2)));
  return head;
}

// 32-bit ids are far below 2^32: read as half-words, every second one is tiny. 16-bit text is not
// like that.
TokenType guess_type(const MappedFile& file) {
  constexpr int64_t kPairs = 4096;
  constexpr uint16_t kTiny = 16;  // ids below 2^20
  const auto pairs = std::min(kPairs, int64_t(file.size() / 4));
  if (file.size() % 4 != 0 || pairs < 64) return TokenType::uint16;
  bool low_tiny = true, low_zero = true, high_zero = true;
  for (int64_t i = 0; i < pairs; ++i) {
    uint16_t half[2];  // little-endian: low, high
    std::memcpy(half, file.data() + i * 4, 4);
    if (half[1] >= kTiny) return TokenType::uint16;
    low_tiny = low_tiny && half[0] < kTiny;
    low_zero = low_zero && half[0] == 0;
    high_zero = high_zero && half[1] == 0;
  }
  // 16-bit ids below 16 only (digits, DNA) are tiny in both halves, but hardly zero in every second
  // one
  return !low_zero && (!low_tiny || high_zero) ? TokenType::uint32 : TokenType::uint16;
}

fs::path index_beside(const fs::path& file) { return fs::path(file).replace_extension(".idx"); }

}  // namespace

struct TokenFile::Impl {
  explicit Impl(const fs::path& file) : tokens(file) {}
  MappedFile tokens;
  std::unique_ptr<MappedFile> index;
  Head head;
  int64_t count = 0;
  int64_t documents = 0;

  int64_t width() const { return head.type == TokenType::uint16 ? 2 : 4; }
  const char* ids() const { return tokens.data() + head.bytes; }
};

TokenFile::TokenFile(const fs::path& file, std::optional<TokenType> type)
    : impl_(std::make_unique<Impl>(file)) {
  auto& self = *impl_;
  const auto index_file = index_beside(file);
  if (fs::exists(index_file)) {
    self.index = std::make_unique<MappedFile>(index_file);
    const auto index =
        sources::read_token_index(self.index->data(), int64_t(self.index->size()), index_file);
    self.head = {.layout = TokenLayout::gradus,
                 .type = index.width == 2 ? TokenType::uint16 : TokenType::uint32,
                 .count = index.tokens};
    self.documents = index.documents;
  } else if (const auto head = read_llm_c_head(self.tokens)) {
    self.head = *head;
  } else {
    self.head.type = type.value_or(guess_type(self.tokens));
  }
  const auto bytes = int64_t(self.tokens.size()) - self.head.bytes;
  self.count = bytes / self.width();
  const auto name = self.width() == 2 ? "uint16" : "uint32";
  if (type && *type != self.head.type)
    throw bad_tokens(
        file,
        fmt::format("its {} says {}, but {} was requested", self.index ? "index" : "header", name,
                    *type == TokenType::uint16 ? "uint16" : "uint32"),
        "Leave the type to the file.");
  if (self.head.count && *self.head.count != self.count)
    throw bad_tokens(
        file,
        fmt::format("the {} promises {} ids, the file holds {}", self.index ? "index" : "header",
                    with_commas(*self.head.count), with_commas(self.count)),
        "The file is cut short or belongs to another index. Make it again.");
  if (bytes % self.width() != 0)
    throw bad_tokens(
        file, fmt::format("{} bytes are not a whole number of {} ids", with_commas(bytes), name),
        "The file is cut short, or holds ids of another width; give the type.");
}

TokenFile::~TokenFile() = default;
TokenFile::TokenFile(TokenFile&&) noexcept = default;
TokenFile& TokenFile::operator=(TokenFile&&) noexcept = default;

TokenLayout TokenFile::layout() const { return impl_->head.layout; }
TokenType TokenFile::type() const { return impl_->head.type; }
int64_t TokenFile::size() const { return impl_->count; }
int64_t TokenFile::documents() const { return impl_->documents; }
const fs::path& TokenFile::path() const { return impl_->tokens.path(); }

uint32_t TokenFile::operator[](int64_t position) const {
  return uint32_t(read(position, 1).front());
}

Value::Ints TokenFile::read(int64_t first, int64_t count) const {
  if (first < 0 || count < 0 || first > impl_->count - count)
    throw Error("G-SRC-17", ErrorKind::data,
                fmt::format("ids {} to {} of {} do not exist: it holds {}", first, first + count,
                            path().string(), impl_->count));
  sources::check_not_cut_short(impl_->tokens);
  Value::Ints ids(static_cast<size_t>(count));
  const auto copy = [&](auto id) {
    const auto* from = impl_->ids() + first * int64_t(sizeof id);
    for (auto& to : ids) {
      std::memcpy(&id, from, sizeof id);
      from += sizeof id;
      to = int64_t(id);
    }
  };
  if (impl_->head.type == TokenType::uint16)
    copy(uint16_t{});
  else
    copy(uint32_t{});
  return ids;
}

int64_t TokenFile::document_start(int64_t index) const {
  if (index < 0 || index > impl_->documents || impl_->index == nullptr)
    throw sources::row_out_of_range(index, impl_->documents);
  sources::check_not_cut_short(*impl_->index);
  const auto start = sources::token_index_entry(impl_->index->data(), index);
  if (start < 0 || start > impl_->count)
    throw bad_tokens(
        path(),
        fmt::format("the index says document {} begins at id {} of {}", index, start, impl_->count),
        "Make the file again.");
  return start;
}

namespace {

using Columns = std::vector<ColumnInfo>;

ColumnInfo ids_column(const char* name, TokenType type) {
  return {.name = name,
          .kind = ColumnKind::integers,
          .stored_as = type == TokenType::uint16 ? "uint16 tokens" : "uint32 tokens"};
}

void check_vocabulary(const Value::Ints& ids, std::optional<int64_t> vocab_size,
                      const TokenFile& file, int64_t first) {
  if (!vocab_size) return;
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] >= *vocab_size)
      throw Error("G-SRC-13", ErrorKind::data,
                  fmt::format("{}: id {} at position {} is outside the vocabulary of {}",
                              file.path().string(), ids[i], with_commas(first + int64_t(i)),
                              with_commas(*vocab_size)),
                  "The file was made with another tokenizer, or its ids are stored in another "
                  "width than was taken.");
}

class WindowDataset : public TableDataset {
 public:
  WindowDataset(std::vector<TokenFile> files, const TokenWindowOptions& options)
      : files_(std::move(files)), options_(options) {
    const auto needed = options.block_size + (options.shifted_labels ? 1 : 0);
    for (const auto& file : files_) {
      const auto windows = file.size() < needed ? 0 : (file.size() - needed) / stride() + 1;
      first_rows_.push_back(first_rows_.back() + windows);
    }
    columns_ = {ids_column("input_ids", files_.front().type()),
                ids_column("labels", files_.front().type())};
  }
  int64_t size() const override { return first_rows_.back(); }
  const Columns& columns() const override { return columns_; }
  Example get(int64_t index) const override {
    if (index < 0 || index >= size()) throw sources::row_out_of_range(index, size());
    const auto at = size_t(std::upper_bound(first_rows_.begin(), first_rows_.end(), index) -
                           first_rows_.begin() - 1);
    const auto& file = files_[at];
    const auto first = (index - first_rows_[at]) * stride();
    auto ids = file.read(first, options_.block_size + (options_.shifted_labels ? 1 : 0));
    check_vocabulary(ids, options_.vocab_size, file, first);
    auto labels = options_.shifted_labels ? Value::Ints(ids.begin() + 1, ids.end()) : ids;
    ids.resize(size_t(options_.block_size));
    return {{"input_ids", Value(std::move(ids))}, {"labels", Value(std::move(labels))}};
  }

 private:
  int64_t stride() const { return options_.stride.value_or(options_.block_size); }
  std::vector<TokenFile> files_;
  TokenWindowOptions options_;
  Columns columns_;
  std::vector<int64_t> first_rows_{0};
};

class DocumentDataset : public TableDataset {
 public:
  DocumentDataset(TokenFile file, std::optional<int64_t> vocab_size)
      : file_(std::move(file)),
        vocab_size_(vocab_size),
        columns_{ids_column("input_ids", file_.type())} {}
  int64_t size() const override { return file_.documents(); }
  const Columns& columns() const override { return columns_; }
  Example get(int64_t index) const override {
    if (index < 0 || index >= size()) throw sources::row_out_of_range(index, size());
    const auto first = file_.document_start(index), end = file_.document_start(index + 1);
    auto ids = file_.read(first, end - first);
    check_vocabulary(ids, vocab_size_, file_, first);
    return {{"input_ids", Value(std::move(ids))}};
  }

 private:
  TokenFile file_;
  std::optional<int64_t> vocab_size_;
  Columns columns_;
};

}  // namespace

std::shared_ptr<TableDataset> token_windows(const std::vector<fs::path>& paths,
                                            const TokenWindowOptions& options) {
  if (options.block_size < 1 || options.stride.value_or(1) < 1)
    throw Error("G-SRC-12", ErrorKind::usage,
                fmt::format("block_size {} and stride {} must be at least 1", options.block_size,
                            options.stride.value_or(options.block_size)));
  std::vector<TokenFile> files;
  for (const auto& path : paths) files.emplace_back(path, options.type);
  const auto first = paths.front().string();
  const auto ids = files.front().size();
  auto windows = std::make_shared<WindowDataset>(std::move(files), options);
  if (windows->size() == 0)
    throw Error("G-SRC-3", ErrorKind::data,
                fmt::format("{} holds {} ids, too few for one window of block_size={}", first,
                            with_commas(ids), options.block_size),
                "Choose a smaller block_size, or give more data.");
  return windows;
}

std::shared_ptr<TableDataset> token_windows(const fs::path& file,
                                            const TokenWindowOptions& options) {
  return token_windows(std::vector{file}, options);
}

std::shared_ptr<TableDataset> token_documents(const fs::path& path,
                                              std::optional<int64_t> vocab_size) {
  TokenFile file(path);
  if (file.layout() != TokenLayout::gradus)
    throw bad_tokens(path,
                     fmt::format("there is no index {} beside it", index_beside(path).string()),
                     "Only files written by gradus tokenize say where documents begin. Use "
                     "token_windows instead.");
  return std::make_shared<DocumentDataset>(std::move(file), vocab_size);
}

}  // namespace gradus
