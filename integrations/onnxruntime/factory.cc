// The entry points that ONNX Runtime looks up, and the factory of providers.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "options.h"
#include "provider.h"
#include "reports.h"
#include "rules.h"
#include "status.h"

namespace intact::onnxruntime {
namespace {

class Factory : public OrtEpFactory {
 public:
  /// `is_nhwc`: Settings::is_nhwc.
  explicit Factory(bool is_nhwc) : OrtEpFactory{}, is_nhwc_(is_nhwc) {
    ort_version_supported = ORT_API_VERSION;
    OrtEpFactory::GetName = [](const OrtEpFactory*) noexcept { return kProviderName; };
    OrtEpFactory::GetVendor = [](const OrtEpFactory*) noexcept { return "intact"; };
    OrtEpFactory::GetVendorId = [](const OrtEpFactory*) noexcept { return uint32_t{0}; };
    OrtEpFactory::GetVersion = [](const OrtEpFactory*) noexcept { return intact_version(); };
    OrtEpFactory::GetSupportedDevices = [](OrtEpFactory* self, const OrtHardwareDevice* const* devices,
                                           size_t count, OrtEpDevice** found, size_t most,
                                           size_t* found_count) noexcept {
      return Guard([&] {
        *found_count = 0;
        for (size_t i = 0; i < count && *found_count < most; ++i) {
          if (Ort::GetApi().HardwareDevice_Type(devices[i]) != OrtHardwareDeviceType_CPU) continue;
          Ort::ThrowOnError(
              Ort::GetEpApi().CreateEpDevice(self, devices[i], nullptr, nullptr, &found[*found_count]));
          ++*found_count;
        }
      });
    };
    OrtEpFactory::CreateEp = [](OrtEpFactory* self, const OrtHardwareDevice* const*,
                                const OrtKeyValuePairs* const*, size_t, const OrtSessionOptions* session,
                                const OrtLogger*, OrtEp** created) noexcept {
      return Guard([&] {
        Options options = OptionsOf(Ort::ConstSessionOptions(session), static_cast<Factory*>(self)->is_nhwc_);
        *created = std::make_unique<Provider>(options.settings, std::move(options.report_id)).release();
      });
    };
    OrtEpFactory::ReleaseEp = [](OrtEpFactory*, OrtEp* provider) noexcept {
      delete static_cast<Provider*>(provider);
    };
    OrtEpFactory::CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                                       OrtAllocator** allocator) noexcept -> OrtStatus* {
      *allocator = nullptr;  // the CPU's
      return nullptr;
    };
    OrtEpFactory::ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) noexcept {};
    OrtEpFactory::CreateDataTransfer = [](OrtEpFactory*,
                                          OrtDataTransferImpl** transfer) noexcept -> OrtStatus* {
      *transfer = nullptr;
      return nullptr;
    };
    OrtEpFactory::IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
  }

 private:
  const bool is_nhwc_;
};

}  // namespace
}  // namespace intact::onnxruntime

extern "C" {

/** ONNX Runtime's entry point: makes the factory. */
INTACT_API OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base, const OrtLogger*,
                                        OrtEpFactory** factories, size_t most, size_t* count) {
  const OrtApi* const api = base->GetApi(ORT_API_VERSION);
  if (api == nullptr) {
    const std::string message = std::string("intact: ONNX Runtime is ") + base->GetVersionString() +
                                "; expected 1." + std::to_string(ORT_API_VERSION) +
                                " or newer, the version of the headers that the provider was built with";
    return base->GetApi(1)->CreateStatus(ORT_FAIL, message.c_str());  // each runtime has version 1
  }
  Ort::InitApi(api);
  return intact::onnxruntime::Guard([&] {
    *count = 0;
    if (most < 1) throw std::runtime_error("there is no room for a factory; expected room for 1");
    intact::onnxruntime::RuntimeVersion() = base->GetVersionString();
    // ONNX Runtime before 1.28 leaves some nodes that it has moved to NHWC without a kernel.
    const int minor = intact::onnxruntime::RuntimeMinor();
    factories[(*count)++] = new intact::onnxruntime::Factory(minor == 0 || minor >= 28);
  });
}

/** ONNX Runtime's entry point: the factory goes. */
INTACT_API OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  delete static_cast<intact::onnxruntime::Factory*>(factory);
  return nullptr;
}

/** Copies what became of the nodes of the session with the option `report` = `id`: JSON, a list of objects
 * with "name", "op", "domain", "taken" and "kernel" or "reason". At most `size` bytes are written to `json`,
 * a zero at the end among them. Returns the bytes that all of it takes; 1 if there is no such session; 0 if
 * memory ran out. */
INTACT_API size_t intact_onnxruntime_report(const char* id, char* json, size_t size) {
  try {
    const std::string report = intact::onnxruntime::Reports::Get(id);
    if (size > 0) {
      const size_t copied = std::min(report.size(), size - 1);
      std::memcpy(json, report.data(), copied);
      json[copied] = '\0';
    }
    return report.size() + 1;
  } catch (const std::exception&) {
    return 0;  // no memory
  }
}
}
