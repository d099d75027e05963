#include <gradus/functional/args.h>

#include <fmt/format.h>
#include <gradus/core/error.h>

namespace gradus::functional {
namespace {

/// Every field with its name, in order.
template <class SomeArgs, class F>
void for_each_field(SomeArgs& args, F f) {
  f("model_id", args.model_id);
  f("logging_steps", args.logging_steps);
  f("save_steps", args.save_steps);
  f("block_size", args.block_size);
  f("num_random_blocks", args.num_random_blocks);
  f("batch_size_per_device", args.batch_size_per_device);
  f("max_epochs", args.max_epochs);
  f("lr", args.lr);
  f("init_lr", args.init_lr);
  f("warmup_steps", args.warmup_steps);
  f("weight_decay", args.weight_decay);
  f("save_dir", args.save_dir);
  f("base_dir", args.base_dir);
  f("tr_data_path", args.tr_data_path);
  f("val_data_path", args.val_data_path);
}

}  // namespace

std::filesystem::path Args::checkpoint_dir(int64_t epoch, int64_t step) const {
  return std::filesystem::path(base_dir) / fmt::format("{}-e{}-s{}", save_dir, epoch, step);
}

nlohmann::ordered_json to_json(const Args& args) {
  nlohmann::ordered_json json;
  for_each_field(args, [&](const char* name, const auto& value) { json[name] = value; });
  return json;
}

Args args_from_json(const nlohmann::json& json, const std::string& where) {
  const auto wrong = [&](const std::string& what) {
    throw Error("G-FN-4", ErrorKind::checkpoint, where + ": " + what,
                "It should hold what gradus wrote: the fields of functional::Args.");
  };
  if (!json.is_object()) wrong("expected an object");
  Args args;
  size_t known = 0;
  for_each_field(args, [&](const char* name, auto& value) {
    const auto entry = json.find(name);
    if (entry == json.end()) return;
    ++known;
    using Field = std::remove_reference_t<decltype(value)>;
    const bool fits = std::is_same_v<Field, std::string> ? entry->is_string()
                      : std::is_same_v<Field, double>    ? entry->is_number()
                                                         : entry->is_number_integer();
    if (!fits)
      wrong(fmt::format("{} is {}, expected {}", name, entry->dump(),
                        std::is_same_v<Field, std::string> ? "text"
                        : std::is_same_v<Field, double>    ? "a number"
                                                           : "an integer"));
    else
      entry->get_to(value);
  });
  if (known != json.size()) {
    const auto fields = to_json(args);
    for (const auto& [name, value] : json.items())
      if (!fields.contains(name)) wrong("unknown field '" + name + "'");
  }
  return args;
}

Schedule warmup_then_decay(const Args& args, int64_t num_train_steps) {
  return join(linear(args.init_lr, args.lr, args.warmup_steps),
              linear(args.lr, 1e-7, num_train_steps - args.warmup_steps));
}

GradientTransformation build_tx(const Args& args, int64_t num_train_steps) {
  return adamw(warmup_then_decay(args, num_train_steps),
               {.weight_decay = args.weight_decay, .mask = no_bias_no_norm});
}

}  // namespace gradus::functional
