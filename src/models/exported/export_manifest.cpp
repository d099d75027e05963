#include "models/exported/export_manifest.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>

#include <algorithm>
#include <unordered_set>

namespace gradus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Manifest = ExportManifest;

constexpr int64_t kFormat = 1;
constexpr int64_t kMostElements = int64_t{1} << 40;

/// Reads members of exported.json, and says which of them is wrong.
class ManifestReader {
 public:
  explicit ManifestReader(fs::path file) : file_(std::move(file)) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error("G-EXPORT-1", ErrorKind::model, fmt::format("{}: {}", file_.string(), what),
                "The file was not written by tools/export_model.py, or was changed since. Export "
                "the model again.");
  }

  const json& member(const json& object, const char* name) const {
    if (!object.is_object()) fail(fmt::format("expected an object that holds \"{}\"", name));
    const auto found = object.find(name);
    if (found == object.end()) fail(fmt::format("\"{}\" is missing", name));
    return *found;
  }
  const json& list(const json& object, const char* name) const {
    const auto& found = member(object, name);
    if (!found.is_array()) fail(fmt::format("\"{}\" must be a list", name));
    return found;
  }
  std::string text(const json& object, const char* name) const {
    const auto& found = member(object, name);
    if (!found.is_string()) fail(fmt::format("\"{}\" must be a text", name));
    return found.get<std::string>();
  }
  std::string text_or_empty(const json& object, const char* name) const {
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? std::string() : text(object, name);
  }
  bool flag(const json& object, const char* name) const {
    const auto& found = member(object, name);
    if (!found.is_boolean()) fail(fmt::format("\"{}\" must be true or false", name));
    return found.get<bool>();
  }
  int64_t count(const json& value, const char* name) const {
    if (!value.is_number_integer() || value.get<int64_t>() < 0)
      fail(fmt::format("\"{}\" must be a whole number", name));
    return value.get<int64_t>();
  }
  std::vector<std::string> names(const json& object, const char* name) const {
    std::vector<std::string> found;
    for (const auto& each : list(object, name)) {
      if (!each.is_string()) fail(fmt::format("\"{}\" must hold texts", name));
      found.push_back(each.get<std::string>());
    }
    return found;
  }
  torch::Dtype dtype(const json& object) const {
    static constexpr std::pair<std::string_view, torch::Dtype> kTypes[] = {
        {"float32", torch::kFloat},     {"float64", torch::kDouble}, {"float16", torch::kHalf},
        {"bfloat16", torch::kBFloat16}, {"int64", torch::kLong},     {"int32", torch::kInt},
        {"int16", torch::kShort},       {"int8", torch::kChar},      {"uint8", torch::kByte},
        {"bool", torch::kBool}};
    const auto name = text(object, "dtype");
    for (const auto& [known, type] : kTypes)
      if (name == known) return type;
    fail("unknown dtype \"" + name + "\"");
  }

  Manifest::Weight weight(const json& value, bool is_parameter) const {
    Manifest::Weight weight{.name = text(value, "name"), .shape = {}, .dtype = dtype(value)};
    int64_t elements = 1;
    for (const auto& size : list(value, "shape")) {
      weight.shape.push_back(count(size, "shape"));
      if (weight.shape.back() > kMostElements ||
          (elements *= std::max<int64_t>(weight.shape.back(), 1)) > kMostElements)
        fail(fmt::format("{} is too large", weight.name));
    }
    if (weight.name.empty() || weight.name.front() == '.' || weight.name.back() == '.' ||
        weight.name.find("..") != std::string::npos)
      fail("\"" + weight.name + "\" is no name of a parameter");
    if (is_parameter) weight.trains = flag(value, "trains");
    if (weight.trains && !c10::isFloatingType(weight.dtype))
      fail(weight.name + " cannot be trained: it has no floating type");
    return weight;
  }

  Manifest::Input input(const json& value, const Manifest& manifest) const {
    Manifest::Input input{.name = text(value, "name"), .dtype = dtype(value), .shape = {}};
    for (const auto& size : list(value, "shape")) {
      if (size.is_string() && manifest.dims.count(size.get<std::string>()) != 0)
        input.shape.push_back({size.get<std::string>(), 0});
      else
        input.shape.push_back({"", count(size, "shape")});
    }
    input.is_label = flag(value, "is_label");
    const auto& fill = member(value, "fill");
    if (fill.is_number()) input.fill = fill.get<double>();
    const auto values = value.find("values");
    if (values == value.end() || values->is_null()) return input;
    input.below = count(member(*values, "below"), "below");
    const auto& ignored = member(*values, "ignored");
    if (ignored.is_number_integer()) input.ignored = ignored.get<int64_t>();
    return input;
  }

  Manifest::Step step(const json& value, bool trains) const {
    Manifest::Step step{.file = text(value, "file")};
    if (step.file.empty() || step.file.find('/') != std::string::npos || step.file.front() == '.')
      fail("\"" + step.file + "\" is no file of this folder");
    step.bytes = uint64_t(count(member(value, "bytes"), "bytes"));
    step.checksum = text(value, "checksum");
    step.outputs = names(value, "outputs");
    if (trains) {
      step.gradients = names(value, "gradients");
      step.buffers = names(value, "buffers");
    }
    return step;
  }

 private:
  fs::path file_;
};

/// Every name that a step mentions must be one of the weights.
void check_names(const ManifestReader& reader, const Manifest& manifest) {
  std::unordered_set<std::string> trained, buffers, all;
  for (const auto& each : manifest.parameters) {
    if (!all.insert(each.name).second) reader.fail(each.name + " appears twice");
    if (each.trains) trained.insert(each.name);
  }
  for (const auto& each : manifest.buffers) {
    if (!all.insert(each.name).second) reader.fail(each.name + " appears twice");
    buffers.insert(each.name);
  }
  for (const auto& [name, first] : manifest.tied)
    if (all.count(first) == 0 || !all.insert(name).second)
      reader.fail(fmt::format("{} cannot be tied to {}", name, first));
  for (const auto& package : manifest.packages) {
    if (!package.train) continue;
    for (const auto& name : package.train->gradients)
      if (trained.count(name) == 0)
        reader.fail(name + " has a gradient, but is no parameter that trains");
    for (const auto& name : package.train->buffers)
      if (buffers.count(name) == 0) reader.fail(name + " is updated, but is no buffer");
  }
}

}  // namespace

ExportManifest ExportManifest::read(const fs::path& folder, const std::string& file) {
  const ManifestReader reader(folder / file);
  ExportManifest made;
  made.text = read_json(folder / file);
  const auto& text = made.text;
  if (reader.count(reader.member(text, "format"), "format") != kFormat)
    reader.fail(fmt::format("format {} is not known here, expected {}",
                            dump_json(text["format"]).substr(0, 20), kFormat));
  made.class_name = reader.text(text, "class_name");
  made.task = reader.text_or_empty(text, "task");
  made.command = reader.text(text, "command");
  made.precision = reader.text(text, "precision");
  made.main_input_name = reader.text(text, "main_input_name");
  const auto& dims = reader.member(text, "dims");
  if (!dims.is_object()) reader.fail("\"dims\" must be an object");
  for (const auto& [name, bounds] : dims.items())
    made.dims[name] = {reader.count(reader.member(bounds, "min"), "min"),
                       reader.count(reader.member(bounds, "max"), "max")};
  for (const auto& value : reader.list(text, "inputs"))
    made.inputs.push_back(reader.input(value, made));
  if (made.inputs.empty()) reader.fail("there are no inputs");
  for (const auto& value : reader.list(text, "parameters"))
    made.parameters.push_back(reader.weight(value, true));
  for (const auto& value : reader.list(text, "buffers"))
    made.buffers.push_back(reader.weight(value, false));
  const auto& tied = reader.member(text, "tied");
  if (!tied.is_object()) reader.fail("\"tied\" must be an object");
  for (const auto& [name, first] : tied.items())
    made.tied.emplace_back(name, first.is_string() ? first.get<std::string>() : "");
  made.layer_norms = reader.names(text, "layer_norms");
  made.embeddings = reader.names(text, "embeddings");
  made.ignored_outputs = reader.names(text, "ignored_outputs");
  made.accepts_loss_kwargs = reader.flag(text, "accepts_loss_kwargs");
  made.takes_items = reader.flag(text, "takes_items");
  made.shifts_labels = reader.flag(text, "shifts_labels");
  made.counts_shifted_labels = reader.flag(text, "counts_shifted_labels");
  made.dropout = reader.flag(text, "dropout");
  made.gradient_checkpointing = reader.flag(text, "gradient_checkpointing");
  for (const auto& value : reader.list(text, "packages")) {
    Package package{.device = reader.text(value, "device"),
                    .torch_version = reader.text(value, "torch_version")};
    const auto capability = reader.text_or_empty(value, "cpu_capability");
    if (!capability.empty()) package.cpu_capability = capability;
    if (value.contains("train")) package.train = reader.step(value["train"], true);
    if (value.contains("forward")) package.forward = reader.step(value["forward"], false);
    made.packages.push_back(std::move(package));
  }
  check_names(reader, made);
  return made;
}

std::vector<std::string> ExportManifest::input_names() const {
  std::vector<std::string> names;
  for (const auto& input : inputs) names.push_back(input.name);
  return names;
}

std::vector<std::string> ExportManifest::label_names() const {
  std::vector<std::string> names;
  for (const auto& input : inputs)
    if (input.is_label) names.push_back(input.name);
  return names;
}

const ExportManifest::Package* ExportManifest::package_for(const std::string& device) const {
  for (const auto& package : packages)
    if (package.device == device) return &package;
  return nullptr;
}

std::string ExportManifest::command_with(const std::string& change) const {
  return command + (change.empty() ? "" : " " + change);
}

}  // namespace gradus
