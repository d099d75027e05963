#include "formats/file_check.h"

#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/formats/safetensors.h>
#include <gradus/formats/torch_file.h>

#include "formats/legacy_torch_file.h"
#include "formats/zip.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

void check_torch_file(const fs::path& file) {
  const auto mapped = std::make_shared<MappedFile>(file);
  const std::string_view bytes(mapped->data(), mapped->size());
  if (is_legacy_torch_file(*mapped)) {
    try {
      read_legacy_torch_file(mapped);
    } catch (const Error& error) {
      if (error.id() == "G-PT-1") throw;  // others refuse what it holds, whole or not
    }
    return;
  }
  // A .bin may be anything; torch's own begin as a zip archive does.
  const bool is_torch = file.extension() != ".bin" || bytes.starts_with("PK") || bytes.empty() ||
                        file.filename().string().starts_with("pytorch_model");
  if (is_torch) static_cast<void>(ZipDirectory(*mapped));
}

// "cannot read PATH: why" without what the caller knows.
std::string reason_alone(const fs::path& file, const std::string& message) {
  const auto known = "cannot read " + file.string() + ": ";
  return message.starts_with(known) ? message.substr(known.size()) : message;
}

}  // namespace

std::optional<std::string> file_problem(const fs::path& file) try {
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown)) return std::nullopt;
  const auto kind = file.extension();
  const bool is_torch = kind == ".pt" || kind == ".pth" || kind == ".bin";
  if (kind != ".safetensors" && kind != ".json" && !is_torch) return std::nullopt;
  if (fs::file_size(file, unknown) == 0 && !unknown) return "it is empty";
  if (kind == ".safetensors")
    read_safetensors(file);  // maps the tensors, does not touch them
  else if (kind == ".json")
    read_json(file);
  else
    check_torch_file(file);
  return std::nullopt;
} catch (const Error& error) {
  return reason_alone(file, error.message());
}

}  // namespace gradus
