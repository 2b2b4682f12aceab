#include "model/model.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <variant>

#include "model/kind.h"
#include "model/layer_of.h"
#include "model/outline.h"

namespace sluice::model {

struct Model::Body {
  explicit Body(Outline given) : outline(std::move(given)) {}
  void make();

  Outline outline;
  std::once_flag once;
  std::vector<std::shared_ptr<const Kind>> kinds;
  std::vector<int> of_layer;
  const LatentAttention* latent = nullptr;
  const StateHeads* states = nullptr;
  std::vector<int64_t> windows;
  bool chunked = false;
};

void Model::Body::make() {
  kinds.push_back(std::make_shared<Kind>(embedding_of(outline)));
  std::vector<BlockType> known;
  for (int64_t index = 0; index < outline.layers; ++index) {
    const BlockType type = outline.block_type(index);
    const auto found = std::ranges::find(known, type);
    of_layer.push_back(static_cast<int>(1 + (found - known.begin())));
    if (found != known.end()) continue;
    known.push_back(type);
    kinds.push_back(std::make_shared<Kind>(layer_of(outline, type)));
  }
  for (const auto& kind : kinds) {
    if (kind->layer() == nullptr) continue;
    for (const Part& part : kind->layer()->parts) {
      if (latent == nullptr) latent = std::get_if<LatentAttention>(&part.mixer);
      if (states == nullptr) states = states_of(part.mixer);
      const auto* const own = std::get_if<Attention>(&part.mixer);
      if (own == nullptr || own->window == 0) continue;
      windows.push_back(own->window);
      chunked = chunked || own->chunked;
    }
  }
  std::ranges::sort(windows);
  windows.erase(std::unique(windows.begin(), windows.end()), windows.end());
  kinds.push_back(std::make_shared<Kind>(head_of(outline)));
}

Model::Model() {
  static const auto kNone = std::make_shared<Body>(Outline{});
  body_ = kNone;
}

Model::Model(Outline outline) : body_(std::make_shared<Body>(std::move(outline))) {}

const Model::Body& Model::made() const {
  std::call_once(body_->once, [this] { body_->make(); });
  return *body_;
}

const std::string& Model::family() const { return body_->outline.family; }
bool Model::counted() const { return body_->outline.counted; }
const base::Json* Model::config() const { return body_->outline.config.json.get(); }
int64_t Model::layers() const { return body_->outline.layers; }
int64_t Model::hidden() const { return body_->outline.hidden; }
int64_t Model::vocab() const { return body_->outline.vocab; }
int64_t Model::positions() const { return body_->outline.positions; }
bool Model::causal() const { return body_->outline.causal; }
const std::vector<std::shared_ptr<const Kind>>& Model::kinds() const { return made().kinds; }
int Model::kind_of(int64_t layer) const { return made().of_layer[static_cast<size_t>(layer)]; }
int64_t Model::heads() const { return body_->outline.heads; }
int64_t Model::kv_heads() const { return body_->outline.kv_heads; }
int64_t Model::head_dim() const { return body_->outline.head_dim; }
const std::vector<int64_t>& Model::windows() const { return made().windows; }
int64_t Model::window() const { return windows().empty() ? body_->outline.window : windows().back(); }
bool Model::attends_by_chunks() const { return made().chunked; }
bool Model::caps_scores() const { return body_->outline.score_cap > 0; }
int64_t Model::ffn_hidden() const { return body_->outline.ffn_hidden; }
bool Model::has_activation(Activation activation) const { return body_->outline.activation == activation; }
const LatentAttention* Model::latent() const { return made().latent; }
const StateHeads* Model::states() const { return made().states; }
const Experts& Model::experts() const { return body_->outline.experts; }
bool Model::has_experts(int64_t layer) const { return body_->outline.block_type(layer).experts; }
const HeadStyle& Model::head() const { return body_->outline.head; }
int64_t Model::head_numbers() const { return body_->outline.head_numbers(); }
bool Model::ties_embeddings() const { return body_->outline.tie_embeddings; }
bool Model::ties_head() const { return body_->outline.ties_head(); }
bool Model::caps_logits() const { return body_->outline.logit_cap > 0; }
bool Model::has_mtp() const { return body_->outline.mtp; }
const Lora& Model::lora() const { return body_->outline.lora; }
const BaseFormat& Model::base() const { return body_->outline.base; }
const Outline& Model::outline() const { return body_->outline; }

bool Model::operator==(const Model& other) const {
  return body_ == other.body_ || body_->outline == other.body_->outline;
}

Model with_vocab(const Model& model, int64_t rows) {
  Outline outline = model.outline();
  outline.vocab = rows;
  return outline;
}

Model named_model(const std::string& name) { return named_outline(name); }

}  // namespace sluice::model
