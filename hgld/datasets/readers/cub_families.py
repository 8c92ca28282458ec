"""The families and orders of the 200 birds of CUB-200-2011, by class number.

38 families in 13 orders: the grouping of Chang et al. (Your "Flamingo" is My "Bird", CVPR 2021), which the authors of
H-GLDv2 adopted. Their copy swaps the red-legged kittiwake (84), a gull, with the white-breasted kingfisher (83), one
of the Halcyonidae; this is corrected here.
"""

from __future__ import annotations

from collections.abc import Mapping

from hgld.datasets.readers.text_lists import parse_ranges

_ORDERS: Mapping[str, Mapping[str, str]] = {
    "Anseriformes": {
        "Anatidae": "46 87 89-90",
    },
    "Apodiformes": {
        "Trochilidae": "67-70",
    },
    "Caprimulgiformes": {
        "Caprimulgidae": "22 92 105",
    },
    "Charadriiformes": {
        "Alcidae": "5-8 58 106",
        "Laridae": "59-66 84 141-147",
        "Stercorariidae": "71-72",
    },
    "Coraciiformes": {
        "Alcedinidae": "79-82",
        "Halcyonidae": "83",
    },
    "Cuculiformes": {
        "Cuculidae": "4 31-33 110",
    },
    "Gaviiformes": {
        "Gaviidae": "86",
    },
    "Passeriformes": {
        "Alaudidae": "85",
        "Bombycillidae": "185-186",
        "Cardinalidae": "14-17 54 57 139-140",
        "Certhiidae": "28",
        "Corvidae": "29-30 73-75 93 107-108",
        "Fringillidae": "34-35 47-48 55-56",
        "Hirundinidae": "135-138",
        "Icteridae": "9-13 26-27 49 88 95-98",
        "Icteriidae": "20",
        "Laniidae": "111-112",
        "Mimidae": "19 91 149-150",
        "Motacillidae": "104",
        "Parulidae": "99 109 158-184 200",
        "Passerellidae": "21 76 113-117 119-133 148",
        "Passeridae": "118",
        "Ptilonorhynchidae": "18",
        "Sittidae": "94",
        "Sturnidae": "134",
        "Troglodytidae": "193-199",
        "Tyrannidae": "37-43 77-78 102-103",
        "Vireonidae": "151-157",
    },
    "Pelecaniformes": {
        "Pelecanidae": "100-101",
    },
    "Piciformes": {
        "Picidae": "36 187-192",
    },
    "Podicipediformes": {
        "Podicipedidae": "50-53",
    },
    "Procellariiformes": {
        "Diomedeidae": "1-3",
        "Procellariidae": "45",
    },
    "Suliformes": {
        "Phalacrocoracidae": "23-25",
        "Fregatidae": "44",
    },
}

#: Family of each class, by class number.
FAMILY = {
    number: family
    for families in _ORDERS.values()
    for family, classes in families.items()
    for number in parse_ranges(classes)
}
#: Order of each family.
ORDER = {family: order for order, families in _ORDERS.items() for family in families}
