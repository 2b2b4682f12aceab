#include "study/system_kinds.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "study/byte_scale.h"
#include "study/deepspeed.h"
#include "study/hotspa.h"
#include "study/hydraulis.h"
#include "study/megatron.h"
#include "study/megatron_dcp.h"
#include "study/sluice_system.h"

namespace sluice::study {

const std::vector<SystemKind>& system_kinds() {
  static const std::vector<SystemKind> kinds = {
      {"sluice", "Sluice", make_sluice},
      {"megatron", "Megatron-LM", make_megatron},
      {"deepspeed", "DeepSpeed", make_deepspeed},
      {"fsdp", "FSDP", make_fsdp},
      {"hotspa", "HotSPa", make_hotspa},
      {"flexsp", "FlexSP", make_flexsp},
      {"megatron_dcp", "Megatron dynamic CP", make_megatron_dcp},
      {"byte_scale_lanes", "ByteScale, lanes alone", make_byte_scale_lanes},
      {"byte_scale_offload", "ByteScale, lanes and offload", make_byte_scale_offload},
      {"byte_scale", "ByteScale", make_byte_scale_balance},
      {"hydraulis", "Hydraulis", make_hydraulis},
      {"hydraulis_first", "Hydraulis, printed ties", make_hydraulis_first},
      {"hydraulis_printed", "Hydraulis, printed constants", make_hydraulis_printed},
      {"static", "static, evened out", make_static},
  };
  return kinds;
}

const SystemKind& system_kind(const std::string& name) {
  std::vector<std::string> names;
  for (const SystemKind& kind : system_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  const std::string nearest = base::nearest_word(name, names);
  throw base::InputError(base::text("there is no system '", name, "': ",
                                    nearest.empty() ? "" : base::text("did you mean '", nearest, "'? "),
                                    "known are ", base::join(names, ", ")));
}

}  // namespace sluice::study
