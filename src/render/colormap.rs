//! Colours: a number from 0 to 1 in, a colour out.

use image::Rgb;

/// A sequence of colours from low to high.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Colormap {
    /// Dark violet, green, yellow; even steps to the eye, also without colour vision.
    #[default]
    Viridis,
    /// Black, purple, cream.
    Magma,
    /// Black, red, pale yellow.
    Inferno,
    /// Blue, red, yellow.
    Plasma,
    /// Blue, gray, yellow; made for colour blindness.
    Cividis,
    /// A rainbow with even steps.
    Turbo,
    /// Black to white.
    Gray,
    /// Blue, pale gray, red: for values on both sides of zero.
    BlueRed,
}

impl Colormap {
    /// Every colormap by name.
    pub const NAMES: &'static [(&'static str, Self)] = &[
        ("viridis", Self::Viridis),
        ("magma", Self::Magma),
        ("inferno", Self::Inferno),
        ("plasma", Self::Plasma),
        ("cividis", Self::Cividis),
        ("turbo", Self::Turbo),
        ("gray", Self::Gray),
        ("blue-red", Self::BlueRed),
    ];

    /// The colour at `place`, 0 to 1.
    fn colour(self, place: f64) -> Rgb<u8> {
        let gradient = match self {
            Self::Viridis => colorous::VIRIDIS,
            Self::Magma => colorous::MAGMA,
            Self::Inferno => colorous::INFERNO,
            Self::Plasma => colorous::PLASMA,
            Self::Cividis => colorous::CIVIDIS,
            Self::Turbo => colorous::TURBO,
            Self::BlueRed => {
                let colour = colorous::RED_BLUE.eval_continuous(1.0 - place);
                return Rgb([colour.r, colour.g, colour.b]);
            }
            Self::Gray => return Rgb([(place * 255.0).round() as u8; 3]),
        };
        let colour = gradient.eval_continuous(place);
        Rgb([colour.r, colour.g, colour.b])
    }
}

super::named!(Colormap);

/// The colour of a value that is not a number: in none of the colormaps.
pub const NOT_A_NUMBER: Rgb<u8> = Rgb([255, 0, 255]);

/// A colormap as 256 colours.
#[derive(Debug, Clone)]
pub struct Palette([Rgb<u8>; 256]);

impl Palette {
    /// Looks up a colormap's colours once.
    pub fn new(colormap: Colormap) -> Self {
        Self(std::array::from_fn(|index| colormap.colour(index as f64 / 255.0)))
    }

    /// The colour at `place`, 0 to 1; NaN has a colour of its own.
    pub fn colour(&self, place: f32) -> Rgb<u8> {
        if place.is_nan() {
            return NOT_A_NUMBER;
        }
        // The cast saturates, so that no place can miss the table.
        let index = (place * 255.0 + 0.5) as u8;
        self.0[usize::from(index)]
    }
}
