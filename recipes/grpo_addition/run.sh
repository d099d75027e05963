#!/bin/sh
# run.sh [FOLDER]: GRPO teaches a small model one-digit addition, on a CPU, in one to two minutes.
#
# The start model has seen nine answers to every sum equally often, eight of them wrong: its answers
# are right in 1 of 9 cases. GRPO rewards exact matches. The log shows
# eval_rewards/exact_match/mean before and after; completions are sampled.
set -e
here=$(cd "$(dirname "$0")" && pwd)
gradus=${GRADUS:-gradus}
folder=${1:-addition}
python3 "$here/make.py" "$folder"

$gradus train --task sft --config_name "$folder/start" --tokenizer_name "$folder/start" \
  --train_file "$folder/guesses.jsonl" --output_dir "$folder/guesser" \
  --max_steps 400 --per_device_train_batch_size 64 --learning_rate 2e-3 --bf16 false \
  --gradient_checkpointing false --save_strategy no --logging_steps 100 --report_to none

$gradus train --task grpo --model_name_or_path "$folder/guesser" \
  --train_file "$folder/sums.jsonl" --validation_file "$folder/sums.jsonl" \
  --reward_funcs exact_match --output_dir "$folder/adder" \
  --num_generations 8 --per_device_train_batch_size 400 --max_completion_length 3 \
  --per_device_eval_batch_size 400 --max_steps 500 --learning_rate 1e-3 --warmup_steps 10 \
  --bf16 false --gradient_checkpointing false --save_strategy no --logging_steps 50 \
  --eval_strategy steps --eval_steps 500 --eval_on_start --report_to none
