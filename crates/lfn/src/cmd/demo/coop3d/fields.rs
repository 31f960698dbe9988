//! Fields as bytes: float64 values, little-endian, as the channel and the script of ANUGA have them.

/// Writes the values into a buffer of the same length.
pub fn encode(values: &[f64], bytes: &mut [u8]) {
    for (place, value) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(values) {
        *place = value.to_le_bytes();
    }
}

/// Reads the values from bytes of the same length.
pub fn decode(bytes: &[u8], values: &mut [f64]) {
    for (value, place) in values.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *value = f64::from_le_bytes(*place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_fields_are_the_encoded_ones() {
        let values = [0.0, -1.5, f64::MAX, 1e-300];
        let (mut bytes, mut read) = ([0; 32], [7.0; 4]);
        encode(&values, &mut bytes);
        decode(&bytes, &mut read);
        assert_eq!(read, values);
        assert_eq!(bytes[8..16], (-1.5_f64).to_le_bytes());
    }
}
