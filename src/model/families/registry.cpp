// The registry of families. A new family is a file beside this one, its reader's name here, and a row.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/families/family.h"

namespace sluice::model {

Read read_llama4, read_phimoe, read_lfm3, read_qwen3_vl_text, read_apertus, read_gemma4, read_kimi_linear,
    read_falcon_h1, read_afmoe, read_arcee, read_bamba, read_cohere2, read_ernie4_5, read_ernie4_5_moe,
    read_glm4, read_hunyuan_v1_dense, read_hunyuan_v1_moe, read_lfm2, read_lfm2_moe, read_ministral3,
    read_mistral4, read_nanochat, read_deepseek_v2, read_deepseek_v3, read_dots1, read_exaone4,
    read_exaone_moe, read_gemma2, read_gemma3, read_gla, read_glm4_moe, read_glm4_moe_lite, read_gpt_oss,
    read_granite, read_granite_hybrid, read_granite_moe, read_granite_moe_shared, read_granite_moe_swa,
    read_granite_swa, read_hunyuan3, read_internlm3, read_llama, read_mamba2, read_mellum, read_minimax_m2,
    read_ministral, read_mistral, read_mixtral, read_nemotron, read_nemotron_h, read_stablelm,
    read_starcoder2, read_olmo2, read_olmo3, read_olmo_hybrid, read_olmoe, read_phi3, read_qwen2,
    read_qwen2_moe, read_qwen3, read_qwen3_5, read_qwen3_5_moe, read_qwen3_moe, read_qwen3_next,
    read_seed_oss, read_smollm3, read_solar_open, read_modernbert, read_bert;
extern const Names kLlama4Names, kPhimoeNames, kApertusNames, kGemma4Names, kKimiNames, kFalconNames,
    kAfmoeNames, kBambaNames, kErnieNames, kGlm4Names, kHunyuanV1Names, kLfm2Names, kLfm3Names,
    kNanochatNames, kExaoneMoeNames, kGlaNames, kGlmNames, kGptOssNames, kGraniteHybridNames,
    kGraniteWindowNames, kHunyuanNames, kMamba2Names, kMixtralNames, kOlmoHybridNames, kPhi3Names,
    kQwen3NextNames, kQwen3_5Names, kStarCoder2Names, kModernBertNames, kBertNames;

namespace {

const Family kFamilies[] = {
    {"llama", "LLaMA 2, 3.x", "–", "LlamaForCausalLM", read_llama, {}},
    {"mistral", "Mistral", "attention sees a window", "MistralForCausalLM", read_mistral, {}},
    {"qwen2",
     "Qwen 2, 2.5",
     "queries, keys and values have biases; windows in some layers, where the file turns them on",
     "Qwen2ForCausalLM",
     read_qwen2,
     {}},
    {"qwen3",
     "Qwen 3",
     "each head's queries and keys are normed before they are rotated; windows as in Qwen 2",
     "Qwen3ForCausalLM",
     read_qwen3,
     {}},
    {"phi3", "Phi-3",
     "a window, where the file has one; `longrope` (its files fuse queries, keys and values, and "
     "gate and up)",
     "Phi3ForCausalLM", read_phi3, kPhi3Names},
    {"granite",
     "Granite 3",
     "four factors: of embeddings, of what a part adds, of scores, of logits",
     "GraniteForCausalLM",
     read_granite,
     {}},
    {"smollm3",
     "SmolLM 3",
     "some layers' queries and keys are not rotated: two kinds of layers",
     "SmolLM3ForCausalLM",
     read_smollm3,
     {}},
    {"olmo2",
     "OLMo 2",
     "norms after parts; queries and keys of all heads are normed as one row, which sums over TP",
     "Olmo2ForCausalLM",
     read_olmo2,
     {}},
    {"olmo3",
     "OLMo 3",
     "as OLMo 2, with windows in three of four layers, and rotary positions scaled in the others "
     "alone",
     "Olmo3ForCausalLM",
     read_olmo3,
     {}},
    {"ministral",
     "Ministral",
     "as Mistral, with a type for each layer",
     "MinistralForCausalLM",
     read_ministral,
     {}},
    {"seed_oss",
     "Seed-OSS",
     "queries, keys and values have biases, where the file says so the output too; what its file "
     "drops out in training is not",
     "SeedOssForCausalLM",
     read_seed_oss,
     {}},
    {"exaone4",
     "EXAONE 4",
     "norms after parts; normed heads; windows in three of four layers, and no rotary positions "
     "in the others",
     "Exaone4ForCausalLM",
     read_exaone4,
     {}},
    {"internlm3",
     "InternLM 3",
     "as LLaMA (its published files scale rotary positions as `dynamic`, which is refused)",
     "InternLM3ForCausalLM",
     read_internlm3,
     {},
     "model",
     "LlamaForCausalLM"},
    {"arcee",
     "Arcee",
     "MLPs without a gate, of squared ReLU; biases, where the file says so",
     "ArceeForCausalLM",
     read_arcee,
     {}},
    {"starcoder2", "StarCoder 2",
     "LayerNorms; MLPs without a gate, of GELU; biases of all matrices; a window, where the file has one",
     "Starcoder2ForCausalLM", read_starcoder2, kStarCoder2Names},
    {"stablelm",
     "StableLM",
     "LayerNorms; a quarter of each head rotated; biases of queries, keys and values, where the file says so",
     "StableLmForCausalLM",
     read_stablelm,
     {}},
    {"nemotron",
     "Nemotron, Minitron",
     "LayerNorms by 1 + weight; half of each head rotated; MLPs as Arcee's",
     "NemotronForCausalLM",
     read_nemotron,
     {}},
    {"granite_swa",
     "Granite with windows",
     "as Granite, with sinks of attention, windows in three of four layers, and a base of rotary "
     "positions by kind of layer",
     "GraniteSWAForCausalLM",
     read_granite_swa,
     {}},
    {"gemma2",
     "Gemma 2",
     "windows in every other layer; norms before and after parts, by 1 + weight; GeGLU; scaled "
     "embeddings; caps on scores and logits",
     "Gemma2ForCausalLM",
     read_gemma2,
     {}},
    {"gemma3_text",
     "Gemma 3 (text)",
     "as Gemma 2, with normed heads, five windowed layers to each that sees all, and another "
     "base of rotary positions in those",
     "Gemma3ForCausalLM",
     read_gemma3,
     {}},
    {"mixtral", "Mixtral",
     "experts in place of the MLP, whose weights sum to one; a window, where the file has one",
     "MixtralForCausalLM", read_mixtral, kMixtralNames},
    {"qwen2_moe",
     "Qwen 2 MoE",
     "Qwen 2's attention; experts beside a shared one with a factor of its own by token; layers "
     "with an MLP, where the file says so",
     "Qwen2MoeForCausalLM",
     read_qwen2_moe,
     {}},
    {"qwen3_moe",
     "Qwen 3 MoE",
     "Qwen 3's attention; experts; layers with an MLP",
     "Qwen3MoeForCausalLM",
     read_qwen3_moe,
     {}},
    {"olmoe",
     "OLMoE",
     "experts; queries and keys of all heads normed as one row",
     "OlmoeForCausalLM",
     read_olmoe,
     {}},
    {"gpt_oss", "gpt-oss",
     "sinks of attention, biases of all its matrices, windows in every other layer; experts and "
     "router with biases, gates that are cut",
     "GptOssForCausalLM", read_gpt_oss, kGptOssNames},
    {"glm4_moe", "GLM 4.5, 4.6",
     "Qwen 3's attention, half of each head rotated, with biases where the file says so; "
     "DeepSeek-V3's routing; experts beside shared ones; an MLP in the first layers",
     "Glm4MoeForCausalLM", read_glm4_moe, kGlmNames, "model", "", "layers", MtpPlace::kBehindLayers},
    {"glm4_moe_lite", "GLM 4.7 Flash", "as DeepSeek-V3, with experts where the file says so",
     "Glm4MoeLiteForCausalLM", read_glm4_moe_lite, kGlmNames, "model", "", "layers", MtpPlace::kBehindLayers},
    {"deepseek_v2", "DeepSeek-V2",
     "latent attention; a softmax for scores, and no groups of experts (`topk_method` is "
     "`greedy`)",
     "DeepseekV2ForCausalLM", read_deepseek_v2, kGlmNames},
    {"deepseek_v3", "DeepSeek-V3, R1", "latent attention (below); GLM 4.5's routing and experts",
     "DeepseekV3ForCausalLM", read_deepseek_v3, kGlmNames, "model", "", "layers", MtpPlace::kBehindLayers},
    {"kimi_k2", "Kimi K2", "as DeepSeek-V3", "DeepseekV3ForCausalLM", read_deepseek_v3, kGlmNames},
    {"minimax_m2", "MiniMax M2",
     "queries and keys of all heads normed as one row, half of each head rotated; experts in all "
     "layers, with sigmoids and corrections for scores",
     "MiniMaxM2ForCausalLM", read_minimax_m2, kMixtralNames},
    {"dots1", "dots.llm1",
     "Qwen 3's attention, with windows where the file says so; DeepSeek-V3's routing and experts",
     "Dots1ForCausalLM", read_dots1, kGlmNames},
    {"solar_open", "Solar Open", "LLaMA's attention; GLM 4.5's routing and experts in all layers",
     "SolarOpenForCausalLM", read_solar_open, kGlmNames},
    {"mellum",
     "Mellum 2",
     "as Qwen 3 MoE, with windows in some layers, and another base of rotary positions in those",
     "MellumForCausalLM",
     read_mellum,
     {}},
    {"exaone_moe", "K-EXAONE", "EXAONE 4's attention, normed before parts; DeepSeek-V3's routing and experts",
     "ExaoneMoeForCausalLM", read_exaone_moe, kExaoneMoeNames},
    {"hy_v3", "Hunyuan 3", "Qwen 3's attention; DeepSeek-V3's routing and experts, without groups",
     "HYV3ForCausalLM", read_hunyuan3, kHunyuanNames},
    {"olmo_hybrid", "OLMo hybrid",
     "recurrent layers (gated delta rule) with norms before parts, every fourth one OLMo 2's "
     "attention with norms after it; no rotary positions, where the file says so",
     "OlmoHybridForCausalLM", read_olmo_hybrid, kOlmoHybridNames},
    {"qwen3_5_text", "Qwen 3.5 (text)",
     "recurrent layers, every fourth one attention with normed heads, gates of what each head "
     "attends to, and a quarter of each head rotated; norms by 1 + weight",
     "Qwen3_5ForCausalLM", read_qwen3_5, kQwen3_5Names, "model", "", "layers", MtpPlace::kModule},
    {"qwen3_5_moe_text", "Qwen 3.5 MoE (text)",
     "the same with experts beside a shared one with a factor by token", "Qwen3_5MoeForCausalLM",
     read_qwen3_5_moe, kQwen3_5Names, "model", "", "layers", MtpPlace::kModule},
    {"qwen3_next", "Qwen 3 Next",
     "the same; its files fuse what each key head of a recurrent layer is made of; layers with "
     "an MLP, where the file says so",
     "Qwen3NextForCausalLM", read_qwen3_next, kQwen3NextNames, "model", "", "layers", MtpPlace::kModule},
    {"granitemoehybrid", "Granite 4 (hybrid)",
     "Mamba-2 in most layers, Granite's attention and factors; mostly no rotary positions; "
     "experts beside a shared one, where the file has them",
     "GraniteMoeHybridForCausalLM", read_granite_hybrid, kGraniteHybridNames},
    {"granitemoe", "Granite 3 MoE",
     "as Granite, with experts, whose weights are a softmax of the chosen scores", "GraniteMoeForCausalLM",
     read_granite_moe, kGraniteHybridNames},
    {"granitemoeshared", "Granite MoE with a shared expert", "the same beside an MLP that all tokens visit",
     "GraniteMoeSharedForCausalLM", read_granite_moe_shared, kGraniteHybridNames},
    {"granitemoe_swa", "Granite MoE with windows",
     "as Granite with windows, with experts, and a shared one where the file has it",
     "GraniteMoeSWAForCausalLM", read_granite_moe_swa, kGraniteWindowNames},
    {"mamba2", "Mamba-2",
     "Mamba-2 in all layers, and no MLP; as transformers and Codestral Mamba's Hugging Face "
     "files have it",
     "Mamba2ForCausalLM", read_mamba2, kMamba2Names, "backbone"},
    {"nemotron_h", "Nemotron-H, Nemotron Nano 2, 3",
     "layers of one part: Mamba-2, attention without rotary positions, an MLP as Arcee's, or experts without "
     "gates beside a shared one",
     "NemotronHForCausalLM", read_nemotron_h, kMamba2Names, "backbone"},
    {"ministral3",
     "Ministral 3",
     "as Mistral; queries grow with their positions, a little beyond each original context; `yarn`",
     "Ministral3ForCausalLM",
     read_ministral3,
     {}},
    {"mistral4", "Mistral 4",
     "DeepSeek-V3's latent attention and experts, with a softmax for scores; queries grow as Ministral 3's",
     "Mistral4ForCausalLM", read_mistral4, kGlmNames},
    {"ernie4_5",
     "ERNIE 4.5",
     "neighbouring dimensions of a head turn; biases, where the file says so",
     "Ernie4_5ForCausalLM",
     read_ernie4_5,
     {}},
    {"ernie4_5_moe", "ERNIE 4.5 MoE",
     "the same with experts beside shared ones: a softmax for scores, with corrections",
     "Ernie4_5_MoeForCausalLM", read_ernie4_5_moe, kErnieNames},
    {"glm4", "GLM 4",
     "norms before and after parts; neighbouring dimensions turn, of half of each head; biases of queries, "
     "keys and values",
     "Glm4ForCausalLM", read_glm4, kGlm4Names},
    {"cohere2",
     "Command A, R7B (Cohere 2)",
     "the MLP beside attention, behind the same LayerNorm; neighbouring dimensions turn in layers with a "
     "window, none in the others; logits with a factor",
     "Cohere2ForCausalLM",
     read_cohere2,
     {}},
    {"hunyuan_v1_dense", "Hunyuan 1 (dense)",
     "normed heads, behind their rotation; a base of rotary positions with a factor, where the file says "
     "alpha",
     "HunYuanDenseV1ForCausalLM", read_hunyuan_v1_dense, kHunyuanV1Names},
    {"hunyuan_v1_moe", "Hunyuan 1 MoE", "the same with experts beside a shared one",
     "HunYuanMoEV1ForCausalLM", read_hunyuan_v1_moe, kHunyuanV1Names},
    {"nanochat", "nanochat",
     "norms without weights, also of embeddings and of heads behind their rotation, which goes backwards; "
     "MLPs as Arcee's; a cap on logits",
     "NanoChatForCausalLM", read_nanochat, kNanochatNames},
    {"bamba", "Bamba", "Mamba-2 in most layers, the others attention with half of each head rotated",
     "BambaForCausalLM", read_bamba, kBambaNames},
    {"falcon_h1", "Falcon-H1",
     "Mamba-2 without a norm of its own and attention side by side behind one norm; factors of what all "
     "products give",
     "FalconH1ForCausalLM", read_falcon_h1, kFalconNames},
    {"afmoe", "Trinity (AFMoE)",
     "gated attention with normed heads, rotated in layers with a window alone; norms before and after "
     "parts; DeepSeek-V3's routing and experts",
     "AfmoeForCausalLM", read_afmoe, kAfmoeNames},
    {"lfm2", "LFM2",
     "gated short convolutions of three rows in most layers, in the others attention with normed heads",
     "Lfm2ForCausalLM", read_lfm2, kLfm2Names},
    {"lfm2_moe", "LFM2 MoE", "the same with experts by sigmoids and corrections, but for the first layers",
     "Lfm2MoeForCausalLM", read_lfm2_moe, kLfm2Names},
    {"apertus", "Apertus", "normed heads; MLPs without a gate, of xIELU, which has two numbers of its own",
     "ApertusForCausalLM", read_apertus, kApertusNames},
    {"gemma4_text", "Gemma 4 (text)",
     "as Gemma 3, with norms by weight, normed values, and a number that each layer's result is multiplied "
     "with; layers without a window have wider heads, of which a quarter turns, and may have keys for "
     "values; experts beside the MLP, where the file has them; of E2B and E4B embeddings by layer, and keys "
     "and "
     "values that the last layers share",
     "Gemma4ForCausalLM", read_gemma4, kGemma4Names},
    {"kimi_linear", "Kimi Linear",
     "recurrent layers (a delta rule whose states decay by channel), every fourth one latent attention "
     "without rotary positions; DeepSeek-V3's routing and experts",
     "KimiLinearForCausalLM", read_kimi_linear, kKimiNames},
    {"qwen3_vl_text",
     "Qwen 3 VL (text)",
     "as Qwen 3, from a config.json of its own",
     "Qwen3ForCausalLM",
     read_qwen3_vl_text,
     {}},
    {"lfm3", "LFM3",
     "as LFM2, with convolutions of seven rows, windows in some layers, norms before and after parts, and a "
     "gate of each head",
     "Lfm3ForCausalLM", read_lfm3, kLfm3Names},
    {"llama4_text", "Llama 4 (text)",
     "in three of four layers neighbouring dimensions turn, of heads normed behind that without weights, and "
     "attention sees a chunk of positions; in the others queries grow with their positions; experts by "
     "sigmoids, which multiply what goes in, beside a shared one",
     "Llama4ForCausalLM", read_llama4, kLlama4Names},
    {"phimoe", "Phi-MoE",
     "LayerNorms; experts by SparseMixer, the likeliest two; biases of attention, where the file says so",
     "PhimoeForCausalLM", read_phimoe, kPhimoeNames},
    {"gla", "GLA",
     "gated linear attention in all layers: decays of each key channel, made from 16 numbers a "
     "token; as flash-linear-attention has it, without its short convolutions and feature maps",
     "GLAForCausalLM", read_gla, kGlaNames},
    {"modernbert", "ModernBERT",
     "an encoder: attention looks both ways, in two of three layers through a window; LayerNorms, also of "
     "embeddings and not of the first attention's rows; GeGLU; ends in classes or embeddings "
     "([heads](heads.md))",
     "ModernBertForMaskedLM", read_modernbert, kModernBertNames},
    {"bert", "BERT",
     "an encoder: attention looks both ways; learnt positions; LayerNorms of the sums behind parts; MLPs "
     "without "
     "a gate, of GELU; biases of all matrices; ends in classes or embeddings",
     "BertForMaskedLM", read_bert, kBertNames, "bert.encoder", "", "layer"},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* family_of(std::string_view model_type) {
  const auto found = std::ranges::find(families(), model_type, &Family::model_type);
  return found != families().end() ? &*found : nullptr;
}

const Family& family_of(const Outline& outline) {
  static const Family kNone;
  if (outline.counted) return kNone;
  const Family* const found = family_of(outline.family);
  SLUICE_ASSERT(found != nullptr, base::text("no family ", outline.family));
  return *found;
}

void name_tensors(const Outline& outline, Weight& weight) {
  for (const TensorNames& names : family_of(outline).names) {
    if (names.role != weight.role) continue;
    weight.tensors.clear();
    for (const std::string_view tensor : names.tensors) {
      if (!tensor.empty()) weight.tensors.emplace_back(tensor);
    }
    if (names.stack == Stack::kOneRow) weight.form = FileForm::kDepthwise;
    if (names.stack == Stack::kNone || names.stack == Stack::kOneRow) continue;
    weight.stacked = outline.experts.count;
    // A stack [experts, in, out] is the transpose of the usual form.
    if (names.stack == Stack::kInOut && weight.columns > 1)
      weight.form = weight.form == FileForm::kTransposed ? FileForm::kAsStored : FileForm::kTransposed;
  }
}

}  // namespace sluice::model
