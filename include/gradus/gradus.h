#pragma once

// All of gradus. Programs include this one header.

#include <torch/torch.h>

#include <gradus/config/parse_args.h>
#include <gradus/config/training_arguments.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/collators.h>
#include <gradus/data/data_loader.h>
#include <gradus/data/dataset.h>
#include <gradus/data/images.h>
#include <gradus/data/load_dataset.h>
#include <gradus/functional/trainer.h>
#include <gradus/hooks/accelerate_hook.h>
#include <gradus/hooks/checkpoint_hook.h>
#include <gradus/hooks/ema_hook.h>
#include <gradus/hooks/metrics_hook.h>
#include <gradus/hooks/optimization_hooks.h>
#include <gradus/hooks/progress_hooks.h>
#include <gradus/hooks/trainer.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/image_classifier.h>
#include <gradus/models/model.h>
#include <gradus/models/text_streamer.h>
#include <gradus/optim/adamw.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/schedulers.h>
#include <gradus/tasks/metrics.h>
#include <gradus/text/tokenizer.h>
#include <gradus/trackers/jsonl.h>
#include <gradus/train/callbacks.h>
#include <gradus/train/trainer.h>
#include <gradus/version.h>
