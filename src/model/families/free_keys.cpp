// Keys of config.json files that do not change the arithmetic of training.
#include <algorithm>
#include <string_view>

#include "model/families/reader.h"

namespace sluice::model {
namespace {

constexpr std::string_view kFreeKeys[] = {
    // The origin of a file, and the software that computes it.
    "dtype", "torch_dtype", "auto_map", "attn_implementation", "gradient_checkpointing", "use_cache",
    "use_bfloat16", "torchscript", "pruned_heads", "initializer_range", "transformers.js_config",
    "model_name", "max_sequence_length", "model_max_length", "training_args", "finetuning_task",
    "task_specific_params",
    // Tensors show whether they are quantised; exports are not.
    "quantization_config", "compression_config", "mamba_ssm_dtype",
    // Keys for classes of other tasks, which transformers writes for all.
    "architectures", "is_decoder", "is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder",
    "cross_attention_hidden_size", "problem_type", "id2label", "label2id", "num_labels", "prefix",
    "chunk_size_feed_forward", "return_dict", "use_return_dict", "output_hidden_states", "output_attentions",
    "router_aux_loss_coef",
    // Settings of text generation.
    "max_length", "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams",
    "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "min_p", "typical_p",
    "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
    "tf_legacy_loss", "cache_implementation",
    // Layers that predict further tokens, which are carried along.
    "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"};

// Other programs' notes, and tokens by their purpose.
constexpr std::string_view kFreeBeginnings[] = {"_", "unsloth", "tokenizer"};
constexpr std::string_view kFreeEnds[] = {"_version", "_name_or_path", "_token_id", "_token_ids",
                                          "_token_index"};

}  // namespace

bool changes_no_arithmetic(std::string_view key) {
  return std::ranges::find(kFreeKeys, key) != std::end(kFreeKeys) ||
         std::ranges::any_of(kFreeBeginnings, [&](std::string_view part) { return key.starts_with(part); }) ||
         std::ranges::any_of(kFreeEnds, [&](std::string_view part) { return key.ends_with(part); });
}

}  // namespace sluice::model
