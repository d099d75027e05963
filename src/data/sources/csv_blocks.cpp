#include "data/sources/csv_blocks.h"

#ifdef GRADUS_WITH_ARROW

#include <arrow/memory_pool.h>
#include <arrow/result.h>
#include <arrow/util/utf8.h>
#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "data/sources/arrow_cell.h"
#include "data/sources/source_errors.h"

namespace gradus::sources {
namespace {

constexpr int64_t kLongestCsvRow = (int64_t{2} << 30) - (int64_t{1} << 20);
constexpr const char* kOpenQuote =
    "Look for a quotation mark (\") there that opens a field and is never closed.";

// "\n", "\r\n" and "\r" each end a line.
int64_t line_breaks_in(std::string_view text) {
  int64_t count = 0;
  for (auto at = text.find('\n'); at != text.npos; at = text.find('\n', at + 1)) ++count;
  for (auto at = text.find('\r'); at != text.npos; at = text.find('\r', at + 1))
    count += at + 1 == text.size() || text[at + 1] != '\n';
  return count;
}

// Columns without a name get one from their place; of two that share a name the second is called
// NAME.1.
void name_as_pandas_does(std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i].empty()) names[i] = fmt::format("Unnamed: {}", i);
  const std::set<std::string> written(names.begin(), names.end());
  std::set<std::string> taken;
  std::map<std::string, int64_t> next;  // number to try for the next column of that name
  for (auto& name : names) {
    auto unique = name;
    auto& k = next.try_emplace(name, 1).first->second;
    for (; taken.contains(unique) || (unique != name && written.contains(unique)); ++k)
      unique = fmt::format("{}.{}", name, k);
    taken.insert(name = unique);
  }
}

// Collects the rows of a block that have too many fields, with the line each begins on.
class BadRowsOfBlock {
 public:
  BadRowsOfBlock(const std::filesystem::path& file, std::string_view text, int64_t line,
                 const BadRows& so_far)
      : file_(file), rest_(text), line_(line), left_(so_far.allowed - so_far.skipped) {}
  arrow::csv::InvalidRowResult operator()(const arrow::csv::InvalidRow& row) {
    const auto* begin = row.text.data();
    if (std::less_equal<>()(rest_.data(), begin) &&
        std::less_equal<>()(begin, rest_.data() + rest_.size())) {
      const auto before = rest_.substr(0, size_t(begin - rest_.data()));
      line_ += line_breaks_in(before);
      rest_.remove_prefix(before.size());
    }
    errors.push_back(bad_row(
        file_, line_,
        fmt::format("expected {} fields, found {}", row.expected_columns, row.actual_columns),
        row.text));
    return int64_t(errors.size()) > left_ ? arrow::csv::InvalidRowResult::Error
                                          : arrow::csv::InvalidRowResult::Skip;
  }
  std::vector<Error> errors;

 private:
  const std::filesystem::path& file_;
  std::string_view rest_;  // from the last bad row on
  int64_t line_;
  int64_t left_;
};

}  // namespace

CsvBlocks::CsvBlocks(std::unique_ptr<ByteStream> stream, std::filesystem::path file, char delimiter,
                     size_t block_size, int64_t longest_row)
    : stream_(std::move(stream)),
      file_(std::move(file)),
      block_size_(std::max<size_t>(block_size, 16)),
      longest_row_(size_t(std::clamp<int64_t>(longest_row, 16, kLongestCsvRow))),
      parsing_(arrow::csv::ParseOptions::Defaults()) {
  block_size_ = std::min(block_size_, longest_row_);
  parsing_.delimiter = delimiter;
  parsing_.newlines_in_values = true;
  parsing_.pad_short_rows = true;
  fill(block_size_);
  skip_mark();
  if (!filled().empty()) read_header();
  first_ = place_;
}

void CsvBlocks::seek(Place place) {
  stream_->seek(place.offset);
  begin_ = end_ = 0;
  at_end_ = false;
  place_ = place;
}

std::optional<CsvBlocks::Block> CsvBlocks::next(BadRows& bad_rows) {
  for (size_t size = block_size_;; make_room(size)) {
    fill(size);
    auto text = filled().substr(0, size);  // a long row may have left more than that
    if (text.empty()) return std::nullopt;
    const bool last = at_end_ && text.size() == filled().size();
    if (!last && text.back() == '\r') text.remove_suffix(1);  // it may be half of "\r\n"
    const auto size_in_file = text.size();
    if (last) text = with_line_end();
    BadRowsOfBlock bad(file_, text, place_.line, bad_rows);
    auto parsing = parsing_;
    parsing.invalid_row_handler = std::ref(bad);
    const auto rows = std::make_shared<arrow::csv::BlockParser>(
        arrow::default_memory_pool(), std::move(parsing), int32_t(names_.size()), place_.line,
        std::numeric_limits<int32_t>::max());
    uint32_t parsed = 0;
    const auto status = rows->Parse(text, &parsed);
    for (const auto& error : bad.errors) bad_rows.skip(error);
    check_arrow(status, file_);
    if (parsed == 0 && !last) continue;  // not one whole row
    if (last && parsed < text.size())
      throw damaged(file_,
                    fmt::format("the row that begins on line {} has not ended when the file does",
                                with_commas(place_.line + line_breaks_in(text.substr(0, parsed)))),
                    kOpenQuote);
    Block block{.begin = place_, .rows = rows};
    drop(last ? size_in_file : parsed);
    return block;
  }
}

// What is left of the file, its last row ended by a line break: only then the parser tells an open
// quotation mark from the end.
std::string_view CsvBlocks::with_line_end() {
  if (filled().back() == '\n') return filled();
  if (buffer_.size() == end_) buffer_.resize(end_ + 1);
  buffer_[end_] = '\n';
  return std::string_view(buffer_).substr(begin_, end_ + 1 - begin_);
}

void CsvBlocks::skip_mark() {
  if (filled().starts_with("\xff\xfe") || filled().starts_with("\xfe\xff"))
    throw damaged(file_, "it is UTF-16, expected UTF-8",
                  "Convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW.");
  const auto* bytes = reinterpret_cast<const uint8_t*>(filled().data());
  const auto mark = take(arrow::util::SkipUTF8BOM(bytes, int64_t(filled().size())), file_) - bytes;
  begin_ += size_t(mark);
  place_.offset += mark;
}

void CsvBlocks::read_header() {
  for (size_t size = block_size_;; make_room(size)) {
    fill(size);
    const bool open_end = !at_end_ && filled().back() == '\r';
    arrow::csv::BlockParser row(arrow::default_memory_pool(), parsing_, /*num_cols=*/-1,
                                /*first_row=*/1, /*max_num_rows=*/1);
    uint32_t parsed = 0;
    const auto status = row.Parse(filled().substr(0, filled().size() - open_end), &parsed);
    if (!at_end_ && (!status.ok() || row.num_rows() == 0)) continue;
    check_arrow(status, file_);
    if (row.num_rows() != 1)
      throw damaged(file_, "there is no header row that ends with a line break");
    check_arrow(row.VisitLastRow([&](const uint8_t* cell, uint32_t length, auto...) {
      names_.emplace_back(reinterpret_cast<const char*>(cell), length);
      return arrow::Status::OK();
    }),
                file_);
    name_as_pandas_does(names_);
    drop(parsed);
    return;
  }
}

// Reads until `size` bytes are there or the file ends.
void CsvBlocks::fill(size_t size) {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (buffer_.size() < size) buffer_.resize(size);
  while (!at_end_ && end_ < size) {
    const auto count = stream_->read(buffer_.data() + end_, size - end_);
    at_end_ = count == 0;
    end_ += count;
  }
}

void CsvBlocks::drop(size_t bytes) {
  place_.line += line_breaks_in(filled().substr(0, bytes));
  place_.offset += int64_t(bytes);
  begin_ += bytes;
}

void CsvBlocks::make_room(size_t& size) const {
  if (size >= longest_row_) {
    const auto error = row_too_long(
        file_, "the row that begins on line " + with_commas(place_.line), int64_t(longest_row_));
    throw Error(error.id(), error.kind(), error.message(),
                std::string(kOpenQuote) + " " + error.advice());
  }
  size = std::min(2 * size, longest_row_);
}

}  // namespace gradus::sources

#endif
