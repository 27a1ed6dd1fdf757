#include "worker/model/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/core/status.h"

namespace cairn::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "digests are of little-endian floats");

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    CAIRN_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void Update(const void* data, size_t bytes) {
    CAIRN_CHECK(EVP_DigestUpdate(context_.get(), data, bytes) == 1);
  }
  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int bytes = 0;
    CAIRN_CHECK(EVP_DigestFinal_ex(context_.get(), digest, &bytes) == 1);
    return absl::BytesToHexString({reinterpret_cast<const char*>(digest), bytes});
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

std::string Sha256Hex(absl::string_view bytes) {
  Sha256 sha;
  sha.Update(bytes.data(), bytes.size());
  return sha.Hex();
}

std::string ParametersSha256(const nn::Model& model, absl::Span<const float> parameters) {
  std::vector<const nn::ModelVariable*> variables;
  for (const nn::ModelVariable& variable : model.variables()) variables.push_back(&variable);
  std::sort(variables.begin(), variables.end(),
            [](const nn::ModelVariable* a, const nn::ModelVariable* b) { return a->name < b->name; });
  Sha256 sha;
  for (const nn::ModelVariable* variable : variables) {
    sha.Update(parameters.data() + variable->offset,
               static_cast<size_t>(variable->shape.num_elements()) * sizeof(float));
  }
  return sha.Hex();
}

}  // namespace cairn::worker
