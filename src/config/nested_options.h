#pragma once

#include <gradus/config/training_arguments.h>

namespace gradus::config {

/// Checks the keys of the options that are dictionaries, and brings `accelerator_config` into its
/// full form. What each key does is in docs/user/nested-options.md.
///
/// Throws G-CONF-1 for a key that does not exist, G-CONF-2 for a value of the wrong type, G-CONF-4
/// for a contradiction, G-CONF-5 for what only Python has, G-CONF-6 for an unusable file, and
/// G-CONF-10 for `gradient_checkpointing_kwargs`.
void resolve_nested_options(TrainingArguments& args);

}  // namespace gradus::config
