"""nvidia-smi -q -x as recorded, reduced to what is read, with other values where noted."""

import os
from pathlib import Path

import pytest

from gpukit.host import health
from gpukit.host.smi import parse

RECORDINGS = Path(__file__).with_name("recorded")
LAPTOP = (RECORDINGS / "laptop.xml").read_text(encoding="utf-8")
PASCAL = (RECORDINGS / "pascal.xml").read_text(encoding="utf-8")


def log(driver: str, *gpus: str) -> str:
    return f"<nvidia_smi_log><driver_version>{driver}</driver_version>{''.join(gpus)}</nvidia_smi_log>"


def gpu(name: str, **fields: str) -> str:
    """One card of `nvidia-smi -q -x`, of the fields that are read; other values are N/A, as on most cards."""
    output = {
        "mig": "N/A", "display": "Disabled", "mode": "Default", "ecc": "N/A", "link": "1", "width": "16x",
        "temperature": "32 C", "active": "", "pending": "No", "processes": "", "uuid": "GPU-12345678", **fields,
    }  # fmt: skip
    reasons = ("gpu_idle", "sw_power_cap", "hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown")
    held = "".join(
        f"<clocks_event_reason_{reason}>{'' if reason in output['active'].split() else 'Not '}Active"
        f"</clocks_event_reason_{reason}>"
        for reason in reasons
    )
    return f"""<gpu id="00000000:09:00.0">
      <product_name>{name}</product_name><display_active>{output["display"]}</display_active>
      <mig_mode><current_mig>{output["mig"]}</current_mig></mig_mode><uuid>{output["uuid"]}</uuid>
      <gpu_recovery_action>None</gpu_recovery_action><compute_mode>{output["mode"]}</compute_mode>
      <pci><pci_bus_id>00000000:09:00.0</pci_bus_id><pci_gpu_link_info>
        <pcie_gen><current_link_gen>{output["link"]}</current_link_gen></pcie_gen>
        <link_widths><current_link_width>{output["width"]}</current_link_width></link_widths>
      </pci_gpu_link_info></pci>
      <clocks_event_reasons>{held}</clocks_event_reasons>
      <fb_memory_usage><total>{output.get("memory", "N/A")}</total></fb_memory_usage>
      <ecc_errors><volatile><sram_uncorrectable>{output["ecc"]}</sram_uncorrectable>
        <dram_uncorrectable>{output["ecc"]}</dram_uncorrectable></volatile>
        <channel_repair_pending>{output["pending"]}</channel_repair_pending>
        <unrepairable_memory>N/A</unrepairable_memory></ecc_errors>
      <remapped_rows>N/A</remapped_rows><temperature><gpu_temp>{output["temperature"]}</gpu_temp></temperature>
      <processes>{output["processes"]}</processes></gpu>"""


TELEGRAF = "influxdata/telegraf, plugins/inputs/nvidia_smi/testdata/"
# Values as recorded there: name of the machine -> origin, the output of nvidia-smi -q -x.
RECORDED = {
    "RTX 3090": (f"{TELEGRAF}3090-v13.xml", log("590.44.01", gpu(
        "NVIDIA GeForce RTX 3090", display="Enabled", active="sw_power_cap", memory="24576 MiB"))),
    "RTX PRO 6000": (f"{TELEGRAF}pro-6000-maxq-blackwell-v13.xml", log("590.44.01", gpu(
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", temperature="24 C", memory="97887 MiB"))),
    "A100 with MIG": (f"{TELEGRAF}a100-sxm4-v12.xml", log("535.54.03", gpu(
        "NVIDIA A100-SXM4-80GB", mig="Enabled", ecc="0", link="4", temperature="27 C", memory="81920 MiB"))),
    "RTX 4070 Laptop": ("recorded/laptop.xml", LAPTOP),
    "GTX 1070": ("recorded/pascal.xml", PASCAL),
    # No recording in full is public: the fields that others quote.
    "DGX Spark": ("form: memory N/A, as in NVIDIA/open-gpu-kernel-modules#1358", log("580.95.05", gpu(
        "NVIDIA GB10", link="1", width="1x", temperature="41 C", mode="Default"))),
    "H100": ("form: as an A100 without MIG", log("580.95.05", gpu(
        "NVIDIA H100 80GB HBM3", mig="Disabled", ecc="0", link="5", memory="81559 MiB"))),
    "RTX 5090": ("form: as the RTX PRO 6000", log("580.95.05", gpu(
        "NVIDIA GeForce RTX 5090", link="5", memory="32607 MiB"))),
    "RTX 4090 in WSL": ("form: WDDM, where processes are N/A", log("591.59", gpu(
        "NVIDIA GeForce RTX 4090", display="Enabled", link="4", processes="N/A", memory="24564 MiB"))),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_a_healthy_card_as_recorded(name):
    output = parse(RECORDED[name][1])
    assert (output.message, len(output.cards)) == ("", 1)
    card = output.cards[0]
    assert output.driver and card.name.startswith("NVIDIA")
    assert not card.uncorrected and not card.pending and not card.failure and not card.recovery
    assert card.mig == ("MIG" in name)


def test_recorded_output_is_parsed():
    output = parse(LAPTOP)
    (card,) = output.cards
    assert (output.driver, output.message) == ("575.51.02", "")
    assert (card.name, card.display, card.processes) == ("NVIDIA GeForce RTX 4070 Laptop GPU", True, 2)
    assert (card.gen, card.width, card.temperature) == (2, 8, 41)
    assert (card.slowed, card.uncorrected, card.pending, card.failure) == (("gpu_idle",), None, False, False)
    assert (card.mig, card.recovery) == (False, "")
    (old,) = parse(PASCAL).cards
    assert (old.slowed, old.uncorrected, old.display, old.temperature) == ((), None, False, 60)


@pytest.mark.parametrize(
    ("was", "now", "read"),
    [
        ("<dram_uncorrectable>N/A<", "<dram_uncorrectable>3<", {"uncorrected": 3}),
        ("<remapped_row_pending>No<", "<remapped_row_pending>Yes<", {"pending": True}),
        ("<remapped_row_failure>No<", "<remapped_row_failure>Yes<", {"failure": True}),
        ("<pending_retirement>N/A<", "<pending_retirement>Yes<", {"pending": True}),
        ("<gpu_recovery_action>None<", "<gpu_recovery_action>Reset<", {"recovery": "Reset"}),
        ("<current_mig>N/A<", "<current_mig>Enabled<", {"mig": True}),
        ("<gpu_temp>41 C<", "<gpu_temp>N/A<", {"temperature": None}),
        ("hw_slowdown>Not Active<", "hw_slowdown>Active<", {"slowed": ("gpu_idle", "hw_slowdown")}),
        ("<gpu_temp>41 C<", "<compute_mode>x</compute_mode><gpu_temp>41 C<", {"mode": ""}),
        ("<pci>", "<compute_mode>Exclusive_Process</compute_mode><pci>", {"mode": "Exclusive_Process"}),
        ("<ecc_errors>", "<ecc_errors><channel_repair_pending>Yes</channel_repair_pending>", {"pending": True}),
        ("<ecc_errors>", "<ecc_errors><unrepairable_memory>Yes</unrepairable_memory>", {"failure": True}),
        (
            "<gpu_recovery_action>None</gpu_recovery_action>",  # before driver 570
            "<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>",
            {"recovery": "Reset"},
        ),
    ],
)
def test_other_values(was, now, read):
    (card,) = parse(LAPTOP.replace(was, now)).cards
    assert {name: getattr(card, name) for name in read} == read


def test_invalid_xml():
    assert "cannot be read" in parse("Failed to initialize NVML: Unknown Error").message
    assert parse("<nvidia_smi_log></nvidia_smi_log>").cards == ()


def test_a_container_without_the_kernels_log(monkeypatch):
    opened = os.open
    monkeypatch.setattr(os, "open", lambda _, flags: opened(os.devnull, flags))
    assert health.kernel_log() is None
