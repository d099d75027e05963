#include "core/list_folder.h"

#include <algorithm>

#include "core/file_errors.h"

namespace gradus {
namespace fs = std::filesystem;

std::vector<fs::path> list_folder(const fs::path& folder, Missing missing) {
  std::vector<fs::path> paths;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end;
       entry.increment(code))
    paths.push_back(entry->path());
  if (code == std::errc::no_such_file_or_directory && missing == Missing::is_empty) return {};
  if (code) throw cannot_read(folder, code.value());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace gradus
