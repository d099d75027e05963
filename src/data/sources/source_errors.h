#pragma once

#include <gradus/core/error.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace gradus {
class MappedFile;
}

// The errors of the data sources, each made in one place so that its text and id stay together.
namespace gradus::sources {

/// G-SRC-4. `line` is 1-based; `excerpt` is the start of what was found there.
Error bad_row(const std::filesystem::path& file, int64_t line, const std::string& reason,
              std::string_view excerpt);
/// G-SRC-4 for one more bad row than `allowed`.
Error too_many_bad_rows(const Error& last, int64_t allowed);
/// G-SRC-8.
Error damaged(const std::filesystem::path& file, const std::string& reason,
              const std::string& advice = {});
/// G-SRC-9. `what` cannot be done without Arrow.
Error needs_arrow(const std::string& what);
/// G-SRC-11.
Error cut_short(const std::filesystem::path& file, int64_t expected, int64_t found);
/// Throws G-SRC-11 if the file has become shorter than it was when it was mapped.
void check_not_cut_short(const MappedFile& file);
/// G-SRC-15.
Error foreign_state(const std::string& reason);
/// G-SRC-19. `where` says which row it is: "line 3", "the row at byte 17".
Error row_too_long(const std::filesystem::path& file, const std::string& where, int64_t limit);
/// G-SRC-20. `size` is that of the file.
Error expands_too_far(const std::filesystem::path& file, int64_t size, int64_t limit);
/// G-SRC-17.
Error row_out_of_range(int64_t index, int64_t size);

/// At most `limit` bytes of `text` in quotes on one line, cut at a character and with an ellipsis.
std::string excerpt(std::string_view text, size_t limit = 60);

/// "1,234,567".
std::string with_commas(int64_t number);

}  // namespace gradus::sources
