"""The walk through a compiled program, on texts cut from what libtpu prints: loops, collectives, memory."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workloads.check import hlo
from workloads.check.collectives import Collective, collectives
from workloads.check.walk import work

#: A loop that the compiler has unrolled by two: 16 products in 8 iterations. Its limit is passed into a fusion.
LOOP = """HloModule jit_step, is_scheduled=true

%body (p.1: (s32[], bf16[128,256], bf16[256,256])) -> (s32[], bf16[128,256], bf16[256,256]) {
  %p.1 = (s32[]{:T(128)}, bf16[128,256]{1,0:T(8,128)(2,1)}, bf16[256,256]{1,0:T(8,128)(2,1)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p.1), index=0
  %x = bf16[128,256]{1,0:T(8,128)(2,1)} get-tuple-element(%p.1), index=1
  %w = bf16[256,256]{1,0:T(8,128)(2,1)} get-tuple-element(%p.1), index=2
  %two = s32[]{:T(128)} constant(2)
  %next = s32[]{:T(128)} add(%i, %two)
  %y = bf16[128,256]{1,0:T(8,128)(2,1)S(1)} convolution(%x, %w), dim_labels=bf_io->bf
  %z = bf16[128,256]{1,0:T(8,128)(2,1)} convolution(%y, %w), dim_labels=bf_io->bf
  ROOT %t = (s32[]{:T(128)}, bf16[128,256]{1,0:T(8,128)(2,1)}, bf16[256,256]{1,0:T(8,128)(2,1)}) tuple(%next, %z, %w)
}

%compared (c.0: s32[], c.1: s32[]) -> pred[] {
  %c.0 = s32[]{:T(128)} parameter(0)
  %c.1 = s32[]{:T(128)} parameter(1)
  ROOT %lt = pred[]{:T(512)} compare(%c.0, %c.1), direction=LT
}

%condition (p.2: (s32[], bf16[128,256], bf16[256,256])) -> pred[] {
  %p.2 = (s32[]{:T(128)}, bf16[128,256]{1,0:T(8,128)(2,1)}, bf16[256,256]{1,0:T(8,128)(2,1)}) parameter(0)
  %i.2 = s32[]{:T(128)} get-tuple-element(%p.2), index=0
  %last = s32[]{:T(128)} constant(19)
  ROOT %done = pred[]{:T(512)} fusion(%i.2, %last), kind=kLoop, calls=%compared
}

ENTRY %main (a: bf16[128,256], b: bf16[256,256]) -> bf16[128,256] {
  %a = bf16[128,256]{1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[256,256]{1,0:T(8,128)(2,1)} parameter(1)
  %first = s32[]{:T(128)} constant(3)
  %start = (s32[]{:T(128)}, bf16[128,256]{1,0:T(8,128)(2,1)}, /*index=2*/bf16[256,256]{1,0:T(8,128)(2,1)}) tuple(%first, %a, %b)
  %loop = (s32[]{:T(128)}, bf16[128,256]{1,0:T(8,128)(2,1)}, bf16[256,256]{1,0:T(8,128)(2,1)}) while(%start), condition=%condition, body=%body
  ROOT %out = bf16[128,256]{1,0:T(8,128)(2,1)} get-tuple-element(%loop), index=1
}
"""  # noqa: E501
PRODUCT = 2 * 128 * 256 * 256
X, W = 128 * 256 * 2, 256 * 256 * 2  # bytes


def test_a_loop_counts_from_its_first_value_in_its_own_steps() -> None:
    module = hlo.parse(LOOP)
    assert work(module).flops == 8 * 2 * PRODUCT
    assert module.unresolved == []


def test_values_on_the_chip_are_not_memory_traffic() -> None:
    a_time = (X + W) + (W + X)  # the value between the two products is in S(1)
    scalars = 8 * 3 * 4  # the counter
    assert work(hlo.parse(LOOP)).hbm_bytes == pytest.approx(8 * a_time + scalars, abs=200)


def test_a_loop_that_is_not_counted_is_told() -> None:
    module = hlo.parse(LOOP.replace("direction=LT", "direction=NE"))
    assert work(module).flops == 2 * PRODUCT
    assert set(module.unresolved) == {"loop"}


@pytest.mark.parametrize(
    ("line", "flops"),
    [
        # a plain product
        ("%r = f32[128,512] convolution(%l, %k), dim_labels=bf_io->bf", 2 * 128 * 256 * 512),
        ("%r = f32[128,512] dot(%l, %k), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 2 * 128 * 256 * 512),
        # a product that is written as a convolution over padding: of 2 x 8 places in the window one meets an input
        ("%r = f32[4,2,8] convolution(%l3, %k3), window={size=8 pad=7_7 rhs_reversal=1}, dim_labels=bf0_io0->bf0",
         2 * 4 * 16 * 2 * 8),
        # 3 x 3 over 10 x 10, kept at 10 x 10 by a border of zeros: the corners and edges meet fewer inputs
        ("%r = f32[2,6,10,10] convolution(%i, %c), window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01",
         2 * 2 * 4 * 6 * 28 * 28),
        # as its gradient: the inputs are spread by the stride
        ("%r = f32[2,6,19,19] convolution(%i, %c), window={size=3x3 pad=1_1x1_1 lhs_dilate=2x2}, "
         "dim_labels=bf01_oi01->bf01", 2 * 2 * 4 * 6 * 28 * 28),
    ],
)  # fmt: skip
def test_only_places_that_meet_an_input_count(line: str, flops: int) -> None:
    text = f"""HloModule m

ENTRY %main (l: f32[128,256]) -> f32[] {{
  %l = f32[128,256] parameter(0)
  %k = f32[256,512] parameter(1)
  %l3 = f32[4,16,1] parameter(2)
  %k3 = f32[16,2,8] parameter(3)
  %i = f32[2,4,10,10] parameter(4)
  %c = f32[6,4,3,3] parameter(5)
  ROOT {line}
}}
"""
    assert work(hlo.parse(text)).flops == flops


KERNELS = """HloModule m

ENTRY %main (a: bf16[8,128], b: bf16[8,128]) -> bf16[8,128] {
  %a = bf16[8,128]{1,0} parameter(0)
  %said = bf16[8,128]{1,0} custom-call(%a, %a), custom_call_target="tpu_custom_call", backend_config={"custom_call_config": {"cost_estimate":{"flops":"1000","transcendentals":"0","bytes_accessed":"77"}}}
  %silent = bf16[8,128]{1,0} custom-call(%said), custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"block": "{\\"q\\": 256}"
}}, metadata={op_name="attention"}
  ROOT %product = bf16[8,8]{1,0} dot(%silent, %silent), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""  # noqa: E501


def test_a_kernel_costs_what_its_author_says_or_at_least_what_is_passed() -> None:
    cost = work(hlo.parse(KERNELS))
    assert cost.flops == 1000 + 2 * 8 * 8 * 128, "what stands behind several lines is there"
    passed = 2 * 8 * 128 * 2
    assert cost.hbm_bytes == 77 + passed + (2 * 8 * 128 * 2 + 8 * 8 * 2)
    assert cost.unknown_kernels == ["silent"]


FUSION = """HloModule m

%taken (t.0: f32[64,1024], t.1: s32[]) -> f32[1024] {
  %t.0 = f32[64,1024] parameter(0)
  %t.1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %slice = f32[1,1024] dynamic-slice(%t.0, %t.1, %zero), dynamic_slice_sizes={1,1024}
  ROOT %flat = f32[1024] bitcast(%slice)
}

%put (u.0: f32[64,1024], u.1: f32[1024], u.2: s32[]) -> f32[64,1024] {
  %u.0 = f32[64,1024] parameter(0)
  %u.1 = f32[1024] parameter(1)
  %u.2 = s32[] parameter(2)
  %zero.1 = s32[] constant(0)
  %row = f32[1,1024] bitcast(%u.1)
  ROOT %update = f32[64,1024] dynamic-update-slice(%u.0, %row, %u.2, %zero.1)
}

ENTRY %main (a: f32[64,1024], i: s32[]) -> f32[64,1024] {
  %a = f32[64,1024]{1,0} parameter(0)
  %i = s32[]{:S(6)} parameter(1)
  %one = f32[1024]{0} fusion(%a, %i), kind=kLoop, calls=%taken
  %copy-start = (f32[1024]{0:S(1)}, f32[1024]{0}, u32[]{:S(2)}) copy-start(%one)
  %here = f32[1024]{0:S(1)} copy-done(%copy-start)
  ROOT %all = f32[64,1024]{1,0} fusion(%a, %here, %i), kind=kLoop, calls=%put
}
"""


def test_a_fusion_that_takes_or_puts_a_row_moves_a_row() -> None:
    row = 1024 * 4
    read_and_written, brought_onto_the_chip, put = 2 * row, row, row
    moved = work(hlo.parse(FUSION)).hbm_bytes
    assert moved == read_and_written + brought_onto_the_chip + put


# Collectives ---------------------------------------------------------------------------------------------------------


def described(slices: int, fsdp: int, tensor: int, sides: tuple[int, ...]) -> Any:
    """A mesh of devices in the order of their coordinates."""
    count = fsdp * tensor
    places = [np.unravel_index(i, sides) for i in range(count)]
    devices = np.empty((slices, count), dtype=object)
    for index in np.ndindex(slices, count):
        devices[index] = SimpleNamespace(coords=places[index[1]], slice_index=index[0])
    names = ("dcn", "data", "fsdp", "tensor")
    shape = dict(zip(names, (slices, 1, fsdp, tensor), strict=True))
    return SimpleNamespace(
        axis_names=names, shape=shape, devices=devices.reshape(slices, 1, fsdp, tensor)
    )


def of(line: str, *, mesh: Any, sides: tuple[int, ...], wraps: tuple[bool, ...]) -> Collective:
    text = f"""HloModule m

ENTRY %main (x: f32[1024]) -> f32[] {{
  %x = f32[1024]{{0}} parameter(0)
  %token = token[] after-all()
  ROOT {line}
}}
"""
    (collective,) = collectives(hlo.parse(text), mesh, sides, wraps)
    return collective


ON_16 = {"mesh": described(1, 4, 4, (4, 4)), "sides": (4, 4), "wraps": (False, False)}
V = 4096.0


@pytest.mark.parametrize(
    ("line", "axes", "wire"),
    [
        ("%r = f32[4096] all-gather(%x), replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}", ("tensor",), 3 * V),
        ("%r = f32[1024] all-reduce(%x), replica_groups={{0,4,8,12},{1,5,9,13}}, to_apply=%s", ("fsdp",), 1.5 * V),
        ("%r = f32[256] reduce-scatter(%x), replica_groups=[4,4]<=[16], dimensions={0}", ("tensor",), 0.75 * V),
        ("%r = f32[256] reduce-scatter(%x), replica_groups=[4,4]<=[4,4]T(1,0)", ("fsdp",), 0.75 * V),
        ("%r = f32[1024] all-to-all(%x), replica_groups=mesh['a'=4,'b'=4] {'a'}", ("fsdp",), 0.75 * V),
        ("%r = f32[1024] all-to-all(%x), replica_groups=mesh['a'=16] {'a':(4)4}", ("tensor",), 0.75 * V),
        ("%r = f32[1024] all-reduce(%x), to_apply=%s", ("fsdp", "tensor"), 2 * V * 15 / 16),
        ("%r = (f32[1024], f32[1024], u32[], u32[]) collective-permute-start(%x), "
         "source_target_pairs={{0,1},{1,2},{2,3},{3,0},{4,5},{5,6},{6,7},{7,4}}", ("tensor",), V),
    ],
)  # fmt: skip
def test_groups_are_read_in_each_spelling(line: str, axes: tuple[str, ...], wire: float) -> None:
    collective = of(line, **ON_16)
    assert (collective.axes, collective.wire_bytes) == (axes, wire)


def test_a_group_has_the_links_of_all_physical_axes_that_it_spans() -> None:
    whole = "%r = f32[1024] all-reduce(%x), to_apply=%s"
    row = "%r = f32[1024] all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%s"
    assert of(whole, **ON_16).links == 2
    assert of(row, **ON_16).links == 1
    assert of(row, **{**ON_16, "wraps": (True, True)}).links == 2, "a ring sends both ways"
    cube = {"mesh": described(1, 64, 1, (4, 4, 4)), "sides": (4, 4, 4), "wraps": (True,) * 3}
    assert of(whole, **cube).links == 6


def test_a_collective_among_one_device_is_none() -> None:
    text = """HloModule m

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  ROOT %r = f32[4] all-reduce(%x), replica_groups={{0},{1}}, to_apply=%s
}
"""
    assert collectives(hlo.parse(text), ON_16["mesh"], (4, 4), (False, False)) == []


def test_what_is_sent_between_slices_is_dcn() -> None:
    line = (
        "%send = (f32[1024], u32[], token[]) send(%x, %token), channel_id=7, is_host_transfer=true, "
        'frontend_attributes={_xla_megascale_target="{1,2}x{0:7}",_xla_megascale_transfer_type="ALL_REDUCE"}'
    )
    on = {"mesh": described(2, 8, 1, (2, 2, 2)), "sides": (2, 2, 2), "wraps": (False,) * 3}
    collective = of(line, **on)
    assert (collective.kind, collective.axes, collective.links) == ("all-reduce", ("dcn",), 0)
    assert collective.wire_bytes == V + 4 * 0, "each of two slices sends its half twice"


#: One all-gather that is spread over three fusions, as on v5e.
SPREAD = """HloModule m

%begin (b.0: f32[256]) -> (f32[256], f32[1024]) {
  %b.0 = f32[256] parameter(0)
  %gather.0 = f32[1024] all-gather(%b.0), channel_id=5, replica_groups={{0,1,2,3}}, dimensions={0}
  ROOT %begun = (f32[256], f32[1024]) custom-call(%gather.0), custom_call_target="AsyncCollectiveStart"
}

%middle (m.0: f32[256]) -> f32[1024] {
  %m.0 = f32[256] parameter(0)
  ROOT %gather.1 = f32[1024] all-gather(%m.0), channel_id=5, replica_groups={{0,1,2,3}}, dimensions={0}
}

%end (e.0: f32[256]) -> f32[1024] {
  %e.0 = f32[256] parameter(0)
  %gather.2 = f32[1024] all-gather(%e.0), channel_id=5, replica_groups={{0,1,2,3}}, dimensions={0}
  ROOT %ended = f32[1024] custom-call(%gather.2), custom_call_target="AsyncCollectiveDone"
}

%halved (h.0: f32[1024], h.1: s32[]) -> f32[256] {
  %h.0 = f32[1024] parameter(0)
  %h.1 = s32[] parameter(1)
  %sum = f32[1024] all-reduce(%h.0), channel_id=6, replica_groups={{0,1,2,3}}, to_apply=%s
  ROOT %mine = f32[256] dynamic-slice(%sum, %h.1), dynamic_slice_sizes={256}
}

ENTRY %main (x: f32[256], i: s32[]) -> f32[256] {
  %x = f32[256] parameter(0)
  %i = s32[] parameter(1)
  %start = (f32[256], f32[1024]) fusion(%x), kind=kCustom, calls=%begin
  %go = f32[1024] fusion(%x), kind=kCustom, calls=%middle
  %stop = f32[1024] fusion(%x), kind=kCustom, calls=%end
  ROOT %all-reduce-scatter = f32[256] fusion(%stop, %i), kind=kCustom, calls=%halved
}
"""


def test_a_collective_that_is_spread_over_fusions_takes_place_once() -> None:
    gather, scatter = collectives(hlo.parse(SPREAD), ON_16["mesh"], (4, 4), (False, False))
    assert (gather.kind, gather.times, gather.wire_bytes) == ("all-gather", 1, 3 * 1024)
    assert (scatter.kind, scatter.wire_bytes) == ("reduce-scatter", 0.75 * 4096)
