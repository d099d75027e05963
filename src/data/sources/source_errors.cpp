#include "data/sources/source_errors.h"

#include <fmt/format.h>

#include "core/mapped_file.h"

namespace gradus::sources {

std::string with_commas(int64_t number) {
  auto digits = std::to_string(number);
  for (auto i = int64_t(digits.size()) - 3; i > (number < 0 ? 1 : 0); i -= 3)
    digits.insert(size_t(i), ",");
  return digits;
}

std::string excerpt(std::string_view text, size_t limit) {
  const bool cut = text.size() > limit;
  if (cut) {
    while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
    text = text.substr(0, limit);
  }
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      out += c == '\t' ? std::string("\\t") : fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + (cut ? "…\"" : "\"");
}

Error bad_row(const std::filesystem::path& file, int64_t line, const std::string& reason,
              std::string_view found) {
  return {"G-SRC-4", ErrorKind::data,
          fmt::format("cannot read {}, line {}: {}; found {}", file.string(), with_commas(line),
                      reason, excerpt(found)),
          "Repair the line, or skip such rows with --skip_bad_rows N "
          "(LoadOptions::skip_bad_rows)."};
}

Error too_many_bad_rows(const Error& last, int64_t allowed) {
  return {"G-SRC-4", ErrorKind::data,
          fmt::format("{} (after {} that skip_bad_rows allowed to skip)", last.message(),
                      with_commas(allowed)),
          "Repair the file, or raise --skip_bad_rows."};
}

Error damaged(const std::filesystem::path& file, const std::string& reason,
              const std::string& advice) {
  return {"G-SRC-8", ErrorKind::data, fmt::format("cannot read {}: {}", file.string(), reason),
          advice.empty() ? "The file is damaged, cut short, or of another format than its name "
                           "says. Fetch or write it again, or name the format with --format."
                         : advice};
}

Error needs_arrow(const std::string& what) {
  return {"G-SRC-9", ErrorKind::data, what + " needs Arrow, and this gradus was built without it",
          "Run tools/setup (it fetches the pyarrow wheel) and build again. JSON Lines, plain text, "
          ".gz and token files work without Arrow."};
}

Error cut_short(const std::filesystem::path& file, int64_t expected, int64_t found) {
  return {"G-SRC-11", ErrorKind::io,
          fmt::format("{} was changed while it was being read: {} bytes when opened, {} now",
                      file.string(), with_commas(expected), with_commas(found)),
          "Do not write to data files during a run. Restore the file and resume from the last "
          "checkpoint."};
}

void check_not_cut_short(const MappedFile& file) {
  if (const auto now = file.shortened_to())
    throw cut_short(file.path(), int64_t(file.size()), int64_t(*now));
}

Error foreign_state(const std::string& reason) {
  return {"G-SRC-15", ErrorKind::data, "cannot continue reading at the saved position: " + reason,
          "Use the same data files, in the same order, and the same options as the run that was "
          "saved."};
}

Error row_too_long(const std::filesystem::path& file, const std::string& where, int64_t limit) {
  return {"G-SRC-19", ErrorKind::data,
          fmt::format("cannot read {}: {} has more than {} bytes", file.string(), where,
                      with_commas(limit)),
          "If the file is meant to have such rows, raise --max_row_bytes "
          "(LoadOptions::max_row_bytes)."};
}

Error expands_too_far(const std::filesystem::path& file, int64_t size, int64_t limit) {
  return {
      "G-SRC-20", ErrorKind::data,
      fmt::format("cannot read {}: its {} bytes unpack to more than {}", file.string(),
                  with_commas(size), with_commas(limit)),
      "If you trust the file, raise --max_expansion (LoadOptions::max_expansion), the number of "
      "times its size that it may take."};
}

Error row_out_of_range(int64_t index, int64_t size) {
  return {"G-SRC-17", ErrorKind::data,
          fmt::format("row {} does not exist: the data set has {} rows", index, size),
          size > 0 ? fmt::format("Rows are numbered 0 to {}.", size - 1) : ""};
}

}  // namespace gradus::sources
